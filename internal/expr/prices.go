// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"math"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

// price returns the cost of a call beyond the cost of its node. It depends only on the values of
// the arguments, not on their static types, and is known before the call. A unit is about 10 bytes
// that the call reads or allocates. A price above limit can be approximate.
type price func(args []ref.Val, limit uint64) uint64

// prices has all functions of expressions. A nil price means that a call costs no more than its
// node, because its time and memory do not depend on the sizes of its arguments. A function without
// an entry is rejected.
var prices = map[string]price{
	operators.Conditional: nil, operators.LogicalAnd: nil, operators.LogicalOr: nil, operators.LogicalNot: nil,
	operators.NotStrictlyFalse: nil, "__not_strictly_false__": nil, // the second is its former name
	operators.Negate: nil, operators.Subtract: nil, operators.Multiply: nil, operators.Divide: nil, operators.Modulo: nil,
	operators.Index: nil, // prepare adds the price of its key
	"dyn":           nil, "type": nil,

	reads:         reading,
	operators.Add: sumPrice,

	operators.Equals: comparing, operators.NotEquals: comparing, operators.In: finding, operators.OldIn: finding, overloads.DeprecatedIn: finding,
	operators.Less: ordering, operators.LessEquals: ordering, operators.Greater: ordering, operators.GreaterEquals: ordering,

	"size": reading, "bool": reading, "bytes": reading, "string": reading, "double": reading, "int": reading, "uint": reading,
	"duration": reading, "timestamp": reading, "json": decoding,

	"getDate": timeZonePrice, "getDayOfMonth": timeZonePrice, "getDayOfWeek": timeZonePrice, "getDayOfYear": timeZonePrice, "getFullYear": timeZonePrice, "getMonth": timeZonePrice,
	"getHours": timeZonePrice, "getMinutes": timeZonePrice, "getSeconds": timeZonePrice, "getMilliseconds": timeZonePrice,

	"contains": scanning, "startsWith": scanning, "endsWith": scanning, matches: scanning, // plan knows the pattern
	"indexOf": searching, "lastIndexOf": searching,
	"charAt": rewriting, "lowerAscii": rewriting, "upperAscii": rewriting, "reverse": rewriting, "substring": rewriting,
	"trim": rewriting, "strings.quote": rewriting,
	"split": splitting, "replace": replacing, "join": joining, "format": formatting,
}

const (
	// zonePrice is the price of reading the rules of a time zone, some KiB.
	zonePrice = 1_000
	// valuePrice is the price of a decoded value: the interface, its slot in a list or map, and the
	// header of its text.
	valuePrice = 8
	// digitPrice is the price of a long number's digit in bytes, because a conversion or comparison
	// copies the digits several times.
	digitPrice = 10
	// partPrice is the price of one part of a text in a list.
	partPrice = 2
)

// readUnits returns the price of reading bytes once.
func readUnits(bytes uint64) uint64 {
	return uint64(math.Ceil(float64(bytes) * common.StringTraversalCostFactor))
}

// textSize returns the bytes of a text, of bytes or of a long number, or 0 for other values.
func textSize(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return nonNegative(len(v))
	case types.Bytes:
		return nonNegative(len(v))
	case longNumber:
		return digitPrice * nonNegative(len(v))
	}
	return 0
}

// lengthOf returns the number of values in a list.
func lengthOf(list traits.Lister) uint64 { return nonNegative(int(list.Size().(types.Int))) }

// nonNegative converts a number that is never negative.
func nonNegative(n int) uint64 { return uint64(max(n, 0)) }

// reading is the price of reading a text, or the keys of a map, once.
func reading(args []ref.Val, _ uint64) uint64 {
	if of, isMap := args[0].(traits.Mapper); isMap {
		return partPrice * nonNegative(int(of.Size().(types.Int)))
	}
	return readUnits(textSize(args[0]))
}

// sumPrice is the price of the result's bytes. A sum of lists refers to both.
func sumPrice(args []ref.Val, _ uint64) uint64 {
	if _, isList := args[0].(traits.Lister); isList {
		return partPrice
	}
	return readUnits(textSize(args[0]) + textSize(args[1]))
}

// comparing is the price of all values in two values that can be equal.
func comparing(args []ref.Val, limit uint64) uint64 {
	if _, isLong := args[0].(longNumber); isLong {
		if _, isLong = args[1].(longNumber); !isLong {
			return 0
		}
		return readUnits(textSize(args[0]) + textSize(args[1])) // 1.0 and 1 have different lengths
	}
	if text := textSize(args[0]); text > 0 {
		if text != textSize(args[1]) {
			return 0
		}
		return readUnits(text)
	}
	left, leftSized := args[0].(traits.Sizer)
	right, rightSized := args[1].(traits.Sizer)
	if !leftSized || !rightSized || textSize(args[1]) > 0 || left.Size() != right.Size() {
		return 0
	}
	return valueWeight(args[0], limit)
}

// ordering is the price of the shorter text, because a comparison ends there.
func ordering(args []ref.Val, _ uint64) uint64 {
	return readUnits(min(textSize(args[0]), textSize(args[1])))
}

// finding is the price of finding a value in a list or a key in a map.
func finding(args []ref.Val, limit uint64) uint64 {
	list, isList := args[1].(traits.Lister)
	if !isList {
		return readUnits(textSize(args[0]))
	}
	if _, sized := args[0].(traits.Sizer); sized {
		return valueWeight(list, limit)
	}
	if _, isLong := args[0].(longNumber); isLong {
		return valueWeight(list, limit) + lengthOf(list)*readUnits(textSize(args[0]))
	}
	return lengthOf(list)
}

// decoding is the price of reading a text and of the resulting values.
func decoding(args []ref.Val, _ uint64) uint64 {
	text, _ := args[0].(types.String)
	return readUnits(textSize(text)) + valuePrice*nonNegative(jsonscan.Measure([]byte(text)).Values)
}

// timeZonePrice is the price of a named time zone.
func timeZonePrice(args []ref.Val, _ uint64) uint64 {
	if len(args) == 1 {
		return 0
	}
	return zonePrice + readUnits(textSize(args[1]))
}

// scanning is the price of reading all texts once.
func scanning(args []ref.Val, _ uint64) uint64 {
	return readUnits(textSize(args[0]) + textSize(args[1]))
}

// searching is the price of a search that starts again at each character. Both texts have four
// bytes per character in memory.
func searching(args []ref.Val, _ uint64) uint64 {
	return readUnits(1+textSize(args[0]))*(1+textSize(args[1])) + readUnits(4*(textSize(args[0])+textSize(args[1])))
}

// rewriting is the price of a text with four bytes per character in memory, and of the result.
func rewriting(args []ref.Val, _ uint64) uint64 { return readUnits(8 * textSize(args[0])) }

// splitting is the price of a text and of its parts.
func splitting(args []ref.Val, _ uint64) uint64 {
	in, isText := args[0].(types.String)
	at, isToo := args[1].(types.String)
	if !isText || !isToo {
		return 0
	}
	return readUnits(textSize(in)) + partPrice*nonNegative(strings.Count(string(in), string(at))+1)
}

// replacing is the price of each byte of the result.
func replacing(args []ref.Val, _ uint64) uint64 {
	in, isText := args[0].(types.String)
	before, isToo := args[1].(types.String)
	if !isText || !isToo {
		return 0
	}
	return readUnits(textSize(in)) + textSize(in) + nonNegative(strings.Count(string(in), string(before)))*textSize(args[2])
}

// joining is the price of each byte of the result.
func joining(args []ref.Val, limit uint64) uint64 {
	list, isList := args[0].(traits.Lister)
	if !isList {
		return 0
	}
	between := uint64(0)
	if len(args) > 1 {
		between = textSize(args[1])
	}
	return valueWeight(list, limit)*10 + lengthOf(list)*between
}

// formatting is the approximate price of each byte of the result.
func formatting(args []ref.Val, limit uint64) uint64 {
	return 4*textSize(args[0]) + valueWeight(args[1], limit)*10
}

// valueWeight is the price of reading all parts of a value, or more than limit.
func valueWeight(value ref.Val, limit uint64) uint64 {
	sum := uint64(1) + readUnits(textSize(value))
	switch v := value.(type) {
	case traits.Lister:
		for i, n := types.Int(0), v.Size().(types.Int); i < n && sum <= limit; i++ {
			sum += valueWeight(v.Get(i), limit-sum)
		}
	case traits.Mapper:
		sum += reading([]ref.Val{value}, limit)
		for it := v.Iterator(); sum <= limit && it.HasNext() == types.True; {
			key := it.Next()
			if sum += valueWeight(key, limit-sum); sum <= limit {
				sum += valueWeight(v.Get(key), limit-sum)
			}
		}
	}
	return sum
}
