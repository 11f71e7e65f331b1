// SPDX-License-Identifier: Apache-2.0

package script

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"

	"github.com/google/uuid"
	"go.starlark.net/starlark"
)

// finite returns a float, or an error if it is not a finite number.
func finiteFloat(a *arguments, f float64) (starlark.Value, error) {
	if a.err != nil {
		return nil, a.err
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fmt.Errorf("%s: the result is not a finite number", a.name)
	}
	return starlark.Float(f + 0), nil // -0 becomes 0.
}

// whole returns a float without a fraction as an integer.
func wholeNumber(a *arguments, f float64) (starlark.Value, error) {
	if a.err != nil {
		return nil, a.err
	}
	n, err := starlark.NumberToInt(starlark.Float(f))
	if err != nil {
		return nil, fmt.Errorf("%s: the result is not a finite number", a.name)
	}
	return n, nil
}

// rounded applies a rounding to a number. An integer stays as it is, with all of its digits.
func rounded(a *arguments, round func(float64) float64) (starlark.Value, error) {
	if n, ok := a.values[0].(starlark.Int); ok {
		return n, nil
	}
	return wholeNumber(a, round(a.floatArg(0)))
}

func computeCeil(_ *call, a *arguments) (starlark.Value, error)  { return rounded(a, math.Ceil) }
func computeFloor(_ *call, a *arguments) (starlark.Value, error) { return rounded(a, math.Floor) }

// round rounds the decimal digits that a reader sees: 2.345 to 2.35, although its float is below 2.345.
func computeRound(_ *call, a *arguments) (starlark.Value, error) {
	digits := a.integer(1)
	switch {
	case a.err != nil:
		return nil, a.err
	case digits < 0 || digits > 15:
		return nil, errors.New("math.round: digits must be between 0 and 15")
	case digits == 0:
		return rounded(a, math.Round)
	}
	return finiteFloat(a, roundDecimal(a.floatArg(0), int(digits)))
}

// roundDecimal rounds the shortest decimal text of a float half away from zero.
func roundDecimal(f float64, digits int) float64 {
	up, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', -1, 64)+"e"+strconv.Itoa(digits), 64)
	if err != nil || math.Abs(up) >= 1<<53 {
		return f
	}
	back, err := strconv.ParseFloat(strconv.FormatFloat(math.Round(up), 'f', -1, 64)+"e-"+strconv.Itoa(digits), 64)
	if err != nil {
		return f
	}
	return back
}

// ofFloat returns the built-in function that computes f.
func ofFloat(f func(float64) float64) implementation {
	return func(_ *call, a *arguments) (starlark.Value, error) { return finiteFloat(a, f(a.floatArg(0))) }
}

// ofFloats returns the built-in function that computes f.
func ofFloats(f func(x, y float64) float64) implementation {
	return func(_ *call, a *arguments) (starlark.Value, error) {
		return finiteFloat(a, f(a.floatArg(0), a.floatArg(1)))
	}
}

func toRadians(degrees float64) float64 { return degrees * math.Pi / 180 }

// random returns the next 32 bytes that the call draws: SHA-256 of its seed and a counter.
func (c *call) drawRandom() [sha256.Size]byte {
	c.drawn++
	return sha256.Sum256(binary.BigEndian.AppendUint64(append([]byte{}, c.message.Seed...), c.drawn))
}

func newUUID(c *call, _ *arguments) (starlark.Value, error) {
	drawn := c.drawRandom()
	id, err := uuid.FromBytes(drawn[:16])
	if err != nil {
		return nil, err
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // version 4, variant of RFC 9562
	return starlark.String(id.String()), nil
}

func randomInt(c *call, a *arguments) (starlark.Value, error) {
	low, high := a.integer(0), a.integer(1)
	span := uint64(high) - uint64(low) + 1 //nolint:gosec // The difference is right modulo 2^64.
	switch {
	case a.err != nil:
		return nil, a.err
	case low > high:
		return nil, errors.New("random.int: low is above high")
	case span == 0 || span > 1<<63:
		return nil, errors.New("random.int: the range is too large")
	}
	for {
		drawn := c.drawRandom()
		number, rest := bits.Mul64(binary.BigEndian.Uint64(drawn[:]), span)
		if rest >= -span%span { // Otherwise some numbers would be drawn more often.
			return starlark.MakeInt64(low + int64(number)), nil //nolint:gosec // It is at most high.
		}
	}
}
