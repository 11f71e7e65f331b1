// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"reflect"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// ScriptedPrefix begins the references of scripted models, which are files in models/.
const ScriptedPrefix = runnerconfig.ProviderScripted + "/"

// modelForm is the form of keys that name a model.
const modelForm = "model"

// ModelUse is a model that a key of an agent names.
type ModelUse struct {
	// Keys are the key and the keys above it, the outermost first.
	Keys []string
	// Reference is the model, as provider/model.
	Reference string
}

// Models returns the models that keys of the agent name, in the order of the keys. It finds these keys by their tags.
func (a *Agent) Models() []ModelUse { return findModels(reflect.ValueOf(a), nil) }

// findModels returns the models that keys in a value name. The path has the keys above them.
func findModels(v reflect.Value, path []string) (uses []ModelUse) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return findModels(v.Elem(), path)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return nil // JSON
		}
		for i := range v.Len() {
			uses = append(uses, findModels(v.Index(i), path)...)
		}
	case reflect.Map:
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, name := range names {
			uses = append(uses, findModels(v.MapIndex(name), append(slices.Clip(path), name.String()))...)
		}
	case reflect.Struct:
		for _, f := range fieldsOf(v.Type()).ordered {
			uses = append(uses, f.findModels(v.FieldByIndex(f.index), append(slices.Clip(path), f.name))...)
		}
	}
	return uses
}

// findModels returns the models that the value of a key names.
func (f *field) findModels(v reflect.Value, path []string) (uses []ModelUse) {
	switch {
	case f.form != modelForm:
		return findModels(v, path)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			uses = append(uses, f.findModels(v.Index(i), path)...)
		}
	case v.String() != "":
		uses = append(uses, ModelUse{Keys: path, Reference: v.String()})
	}
	return uses
}
