// SPDX-License-Identifier: Apache-2.0

package cron

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// checkNumbers rejects a payload with a number that Kubernetes would change. It stores integers of
// 64 bits and everything else as float64. The error is a *FieldError.
func checkNumbers(payload json.RawMessage) error {
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if err != nil { // at the end, because it is valid
			return nil
		}
		if number, isNumber := token.(json.Number); isNumber && !isExactInKubernetes(number) {
			return &FieldError{Field: FieldPayload, Problem: fmt.Sprintf(
				"has a number with too many digits, before its byte %d: write it as a string", decoder.InputOffset())}
		}
	}
}

// isExactInKubernetes reports whether Kubernetes stores a number unchanged.
func isExactInKubernetes(number json.Number) bool {
	if _, err := number.Int64(); err == nil {
		return true
	}
	value, err := number.Float64()
	return err == nil && decimalOf(number.String()) == decimalOf(strconv.FormatFloat(value, 'e', -1, 64))
}

// decimal is 0.digits times ten to the power of point.
type decimal struct {
	negative bool
	digits   string // without leading and trailing zeros
	point    int
}

// decimalOf parses a JSON number.
func decimalOf(text string) decimal {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	point, _ := strconv.Atoi(exponent) // the nearest int if it is too large: no float64 has it
	digits := strings.TrimLeft(whole+fraction, "0")
	point += len(whole) - (len(whole+fraction) - len(digits))
	if digits = strings.TrimRight(digits, "0"); digits == "" {
		return decimal{}
	}
	return decimal{negative, digits, point}
}
