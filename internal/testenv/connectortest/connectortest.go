// SPDX-License-Identifier: Apache-2.0

// Package connectortest makes valid settings of connectors from the tags of their fields, so that tests cover each kind and each
// setting.
package connectortest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/agentplatform/agentplatform/connector"
)

// Required returns the settings that a kind requires.
func Required(kind connector.Kind) (config connector.Config) {
	for _, f := range kind.Fields() {
		if f.Required {
			f.In(&config).SetString(f.Example)
		}
	}
	return config
}

// With returns settings with a value of one of them.
func With(tb testing.TB, config connector.Config, f connector.Field) connector.Config {
	tb.Helper()
	if err := json.Unmarshal(fmt.Appendf(nil, "{%q:%s}", f.Name, Sample(f)), &config); err != nil {
		tb.Fatalf("setting %s: %v", f.Name, err)
	}
	return config
}

// Sample returns a valid value of a setting in JSON, which is not its default.
func Sample(f connector.Field) string {
	switch f.Type {
	case reflect.TypeFor[string]():
		return strconv.Quote(cmp.Or(strings.Join(f.Enum[max(len(f.Enum)-1, 0):], ""), f.Example, "a"))
	case reflect.TypeFor[*int]():
		return strconv.Itoa(f.Max)
	case reflect.TypeFor[[]int]():
		return "[0]"
	case reflect.TypeFor[*bool]():
		return "true"
	case reflect.TypeFor[[]string]():
		return `["` + strings.Trim(f.Example, "[]") + `"]`
	case reflect.TypeFor[*connector.Retry]():
		var inner []string
		for _, r := range connector.RetryFields() {
			inner = append(inner, strconv.Quote(r.Name)+":"+Sample(r))
		}
		return "{" + strings.Join(inner, ",") + "}"
	}
	return `{"a":"b"}`
}
