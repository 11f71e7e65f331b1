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

// price returns the cost of a call beyond the cost of its node. It depends on the values of the
// arguments alone, never on their static types, and is known before the call. A unit stands for
// about 10 bytes that the call reads or allocates. A price above limit need not be exact.
type price func(args []ref.Val, limit uint64) uint64

// prices has every function that an expression can call. A nil price means that a call costs no
// more than its node: its time and memory do not depend on the sizes of its arguments. A function
// that is missing here is rejected.
var prices = map[string]price{
	operators.Conditional: nil, operators.LogicalAnd: nil, operators.LogicalOr: nil, operators.LogicalNot: nil,
	operators.NotStrictlyFalse: nil, "__not_strictly_false__": nil, // the second is its former name
	operators.Negate: nil, operators.Subtract: nil, operators.Multiply: nil, operators.Divide: nil, operators.Modulo: nil,
	operators.Index: nil, // prepare puts a price on its key
	"dyn":           nil, "type": nil,

	reads:         reading,
	operators.Add: adding,

	operators.Equals: comparing, operators.NotEquals: comparing, operators.In: finding, operators.OldIn: finding, overloads.DeprecatedIn: finding,
	operators.Less: ordering, operators.LessEquals: ordering, operators.Greater: ordering, operators.GreaterEquals: ordering,

	"size": reading, "bool": reading, "bytes": reading, "string": reading, "double": reading, "int": reading, "uint": reading,
	"duration": reading, "timestamp": reading, "json": decoding,

	"getDate": zoned, "getDayOfMonth": zoned, "getDayOfWeek": zoned, "getDayOfYear": zoned, "getFullYear": zoned, "getMonth": zoned,
	"getHours": zoned, "getMinutes": zoned, "getSeconds": zoned, "getMilliseconds": zoned,

	"contains": scanning, "startsWith": scanning, "endsWith": scanning, matches: scanning, // a plan knows the pattern
	"indexOf": searching, "lastIndexOf": searching,
	"charAt": rewriting, "lowerAscii": rewriting, "upperAscii": rewriting, "reverse": rewriting, "substring": rewriting,
	"trim": rewriting, "strings.quote": rewriting,
	"split": splitting, "replace": replacing, "join": joining, "format": formatting,
}

const (
	// zonePrice is the price of reading the rules of a time zone, some KiB.
	zonePrice = 1_000
	// valuePrice is the price of one decoded value: of the interface, the slot that it takes in a
	// list or map, and the header of its text.
	valuePrice = 8
	// partPrice is the price of one part of a text in a list.
	partPrice = 2
)

// units returns the price of some bytes that are read once.
func units(bytes uint64) uint64 {
	return uint64(math.Ceil(float64(bytes) * common.StringTraversalCostFactor))
}

// textOf returns how many bytes a text or bytes have, 0 for other values.
func textOf(v ref.Val) uint64 {
	switch v := v.(type) {
	case types.String:
		return count(len(v))
	case types.Bytes:
		return count(len(v))
	}
	return 0
}

// lengthOf returns how many values a list has.
func lengthOf(list traits.Lister) uint64 { return count(int(list.Size().(types.Int))) }

// count is a number of things, which is never negative.
func count(n int) uint64 { return uint64(max(n, 0)) }

// reading is the price of reading a text, or the keys of a map, once.
func reading(args []ref.Val, _ uint64) uint64 {
	if of, isMap := args[0].(traits.Mapper); isMap {
		return partPrice * count(int(of.Size().(types.Int)))
	}
	return units(textOf(args[0]))
}

// adding is the price of the bytes of what it makes; a sum of lists refers to both.
func adding(args []ref.Val, _ uint64) uint64 {
	if _, isList := args[0].(traits.Lister); isList {
		return partPrice
	}
	return units(textOf(args[0]) + textOf(args[1]))
}

// comparing is the price of all values in two values that can be the same.
func comparing(args []ref.Val, limit uint64) uint64 {
	if text := textOf(args[0]); text > 0 {
		if text != textOf(args[1]) {
			return 0
		}
		return units(text)
	}
	left, leftSized := args[0].(traits.Sizer)
	right, rightSized := args[1].(traits.Sizer)
	if !leftSized || !rightSized || textOf(args[1]) > 0 || left.Size() != right.Size() {
		return 0
	}
	return weight(args[0], limit)
}

// ordering is the price of the shorter text, up to whose end both are compared.
func ordering(args []ref.Val, _ uint64) uint64 { return units(min(textOf(args[0]), textOf(args[1]))) }

// finding is the price of finding a value in a list or a key in a map.
func finding(args []ref.Val, limit uint64) uint64 {
	list, isList := args[1].(traits.Lister)
	if !isList {
		return units(textOf(args[0]))
	}
	if _, sized := args[0].(traits.Sizer); sized {
		return weight(list, limit)
	}
	return lengthOf(list)
}

// decoding is the price of reading a text, and of the values that are made of it.
func decoding(args []ref.Val, _ uint64) uint64 {
	text, _ := args[0].(types.String)
	return units(textOf(text)) + valuePrice*count(jsonscan.Measure([]byte(text)).Values)
}

// zoned is the price of a time zone, if one is named.
func zoned(args []ref.Val, _ uint64) uint64 {
	if len(args) == 1 {
		return 0
	}
	return zonePrice + units(textOf(args[1]))
}

// scanning is the price of reading all texts once.
func scanning(args []ref.Val, _ uint64) uint64 { return units(textOf(args[0]) + textOf(args[1])) }

// searching is the price of a search that starts again at each character, of which both texts
// have four bytes.
func searching(args []ref.Val, _ uint64) uint64 {
	return units(1+textOf(args[0]))*(1+textOf(args[1])) + units(4*(textOf(args[0])+textOf(args[1])))
}

// rewriting is the price of a text whose characters have four bytes each in passing, and of what
// is made of them.
func rewriting(args []ref.Val, _ uint64) uint64 { return units(8 * textOf(args[0])) }

// splitting is the price of a text and of its parts.
func splitting(args []ref.Val, _ uint64) uint64 {
	in, isText := args[0].(types.String)
	at, isToo := args[1].(types.String)
	if !isText || !isToo {
		return 0
	}
	return units(textOf(in)) + partPrice*count(strings.Count(string(in), string(at))+1)
}

// replacing is a price for each byte of what it makes.
func replacing(args []ref.Val, _ uint64) uint64 {
	in, isText := args[0].(types.String)
	before, isToo := args[1].(types.String)
	if !isText || !isToo {
		return 0
	}
	return units(textOf(in)) + textOf(in) + count(strings.Count(string(in), string(before)))*textOf(args[2])
}

// joining is a price for each byte of what it makes.
func joining(args []ref.Val, limit uint64) uint64 {
	list, isList := args[0].(traits.Lister)
	if !isList {
		return 0
	}
	between := uint64(0)
	if len(args) > 1 {
		between = textOf(args[1])
	}
	return weight(list, limit)*10 + lengthOf(list)*between
}

// formatting is a price for each byte of what it makes, about.
func formatting(args []ref.Val, limit uint64) uint64 {
	return 4*textOf(args[0]) + weight(args[1], limit)*10
}

// weight is the price of looking at all that a value has in it, or more than limit.
func weight(value ref.Val, limit uint64) uint64 {
	sum := uint64(1) + units(textOf(value))
	switch v := value.(type) {
	case traits.Lister:
		for i, n := types.Int(0), v.Size().(types.Int); i < n && sum <= limit; i++ {
			sum += weight(v.Get(i), limit-sum)
		}
	case traits.Mapper:
		sum += reading([]ref.Val{value}, limit)
		for it := v.Iterator(); sum <= limit && it.HasNext() == types.True; {
			key := it.Next()
			if sum += weight(key, limit-sum); sum <= limit {
				sum += weight(v.Get(key), limit-sum)
			}
		}
	}
	return sum
}
