// SPDX-License-Identifier: Apache-2.0

package exactjson

import (
	"encoding/json"
	"strconv"
	"strings"
)

// maxExponent limits exponents in calculations.
const maxExponent = 1 << 48

// EqualNumbers reports whether two numbers have the same value, such as 1, 1.0 and 10e-1. It
// compares digits, so numbers can be of any length.
func EqualNumbers(a, b json.Number) bool {
	return a == b || canonical(string(a)) == canonical(string(b))
}

// Float64 returns the nearest double, and whether the double has the same value. It has if its
// shortest text has, as for 0.1.
func Float64(n json.Number) (double float64, same bool) {
	double, err := strconv.ParseFloat(string(n), 64)
	if err != nil {
		return double, false
	}
	return double, canonical(strconv.FormatFloat(double, 'e', -1, 64)) == canonical(string(n))
}

// Int64 returns the integer value of a number in any form, such as 1e3. ok is false for fractions
// and for integers beyond an int64.
func Int64(n json.Number) (integer int64, ok bool) {
	text, ok := integerDigits(n)
	if !ok {
		return 0, false
	}
	integer, err := strconv.ParseInt(text, 10, 64)
	return integer, err == nil
}

// Uint64 is Int64 for integers that are not negative.
func Uint64(n json.Number) (integer uint64, ok bool) {
	text, ok := integerDigits(n)
	if !ok {
		return 0, false
	}
	integer, err := strconv.ParseUint(text, 10, 64)
	return integer, err == nil
}

// integerDigits returns the digits of an integer that may fit into 64 bits.
func integerDigits(n json.Number) (string, bool) {
	const most = 20 // digits of the largest
	mantissa, exponent, _ := strings.Cut(canonical(string(n)), "e")
	zeros, err := strconv.Atoi(exponent)
	if err != nil || zeros < 0 || len(mantissa)+zeros > most+len("-") {
		return "", false
	}
	return mantissa + strings.Repeat("0", zeros), true
}

// canonical returns the same text for all texts of a value: an integer without trailing zeros, and
// its exponent. It returns a text with an exponent beyond maxExponent unchanged.
func canonical(number string) string {
	sign := ""
	text, negative := strings.CutPrefix(number, "-")
	if negative {
		sign = "-"
	}
	mantissa, power := text, int64(0)
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		parsed, err := strconv.ParseInt(text[at+1:], 10, 64)
		if mantissa = text[:at]; err != nil || parsed > maxExponent || parsed < -maxExponent {
			if strings.Trim(mantissa, "0.") == "" {
				return "0e0"
			}
			return number
		}
		power = parsed
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	power -= int64(len(fraction))
	all := strings.TrimLeft(whole+fraction, "0")
	if all == "" {
		return "0e0"
	}
	short := strings.TrimRight(all, "0")
	return sign + short + "e" + strconv.FormatInt(power+int64(len(all)-len(short)), 10)
}
