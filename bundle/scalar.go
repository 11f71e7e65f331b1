// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"math"
	"math/big"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"

	"github.com/agentplatform/agentplatform/internal/exactjson"
)

// Numbers of YAML 1.2's core schema (10.3.2). The parser mixes YAML 1.1 and 1.2.
var (
	decimalNumber = regexp.MustCompile(`^([-+]?)(?:0*([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))([eE][-+]?[0-9]+)?$`)
	otherBase     = regexp.MustCompile(`^0(?:o[0-7]+|x[0-9a-fA-F]+)$`)
	notFinite     = regexp.MustCompile(`^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
)

// maxNumber is the maximum length of an octal or hexadecimal number. No double holds a longer one.
const maxNumber = 400

// retypeNumbers turns number tokens into plain text, so that only resolveScalar decides about numbers.
func retypeNumbers(tokens token.Tokens) {
	for _, tk := range tokens {
		switch tk.Type {
		case token.IntegerType, token.BinaryIntegerType, token.OctetIntegerType, token.HexIntegerType,
			token.FloatType, token.InfinityType, token.NanType:
			tk.Type = token.StringType
		default:
		}
	}
}

// resolveScalar returns the value of a plain scalar that is not null and not a bool: a json.Number with the digits of the
// text, or the text. problem says why the scalar is invalid.
func resolveScalar(text string) (value any, problem string) {
	if text == "" || !strings.ContainsAny(text[:1], "+-.0123456789") {
		return text, ""
	}
	var number json.Number
	switch {
	case notFinite.MatchString(text):
		return nil, "JSON has no such number; put it in quotes if it is text"
	case otherBase.MatchString(text):
		if len(text) > maxNumber {
			return nil, tooLarge
		}
		parsed, _ := new(big.Int).SetString(text, 0)
		number = json.Number(parsed.String())
	default:
		number = parseDecimal(text)
	}
	if number == "" {
		return text, ""
	}
	if double, _ := exactjson.Float64(number); math.IsInf(double, 0) {
		return nil, tooLarge
	}
	return number, ""
}

const tooLarge = "number is too large; put it in quotes if it is text"

// parseDecimal returns a text as a JSON number if it is a decimal number of YAML, else "".
func parseDecimal(text string) json.Number {
	parts := decimalNumber.FindStringSubmatch(text)
	if parts == nil {
		return ""
	}
	sign, whole, fraction, exponent := strings.TrimPrefix(parts[1], "+"), parts[2], parts[3]+parts[4], parts[5]
	if whole == "" {
		whole = "0"
	}
	if fraction != "" {
		fraction = "." + fraction
	}
	return json.Number(sign + whole + fraction + exponent)
}

// findInvalidUTF8 returns the position of the first byte that is not UTF-8.
func findInvalidUTF8(file string, data []byte) (at Position, found bool) {
	at = Position{File: file, Line: 1, Column: 1}
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r == utf8.RuneError && size == 1 {
			return at, true
		}
		if at.Column++; r == '\n' {
			at.Line, at.Column = at.Line+1, 1
		}
		data = data[size:]
	}
	return at, false
}
