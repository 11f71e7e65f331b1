// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"math"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// price is what a call costs, which is known before it. Where it is more than limit it says
// no more than that.
type price func(args []ref.Val, limit uint64) uint64

// priced are the functions whose price CEL does not know, or not before they are called.
var priced = map[string]price{
	operators.Equals: comparing, operators.NotEquals: comparing, operators.In: finding,
	"size": reading, "double": reading, "int": reading, "uint": reading, "bool": reading, "duration": reading, "timestamp": reading, "json": reading,
	"indexOf": searching, "lastIndexOf": searching, "replace": replacing, "join": joining, "format": formatting,
}

// matching is what CEL takes for a match, with the instructions of the pattern in the place
// of its bytes.
func (p *plan) matching(args []ref.Val, _ uint64) uint64 {
	return units(1+textOf(args[0])) * uint64(math.Ceil(float64(p.sizes[string(args[1].(types.String))])*common.RegexStringLengthCostFactor))
}

// units are the price of some bytes that are read once.
func units(bytes uint64) uint64 {
	return uint64(math.Ceil(float64(bytes) * common.StringTraversalCostFactor))
}

// textOf is how many bytes a text has, 0 of what is none.
func textOf(v ref.Val) uint64 {
	text, _ := v.(types.String)
	return count(len(text))
}

// lengthOf is how many values a list has.
func lengthOf(list traits.Lister) uint64 { return count(int(list.Size().(types.Int))) }

// count is a number of things, which is never negative.
func count(n int) uint64 { return uint64(max(n, 0)) }

func reading(args []ref.Val, _ uint64) uint64 { return 1 + units(textOf(args[0])) }

// comparing is the price of all values in what is compared, where both may be the same.
func comparing(args []ref.Val, limit uint64) uint64 {
	left, leftSized := args[0].(traits.Sizer)
	right, rightSized := args[1].(traits.Sizer)
	if !leftSized || !rightSized || left.Size() != right.Size() {
		return 1
	}
	return weight(args[0], limit)
}

// finding is the price of finding a value in a list, in a map it is one.
func finding(args []ref.Val, limit uint64) uint64 {
	list, isList := args[1].(traits.Lister)
	if !isList {
		return 1
	}
	if _, sized := args[0].(traits.Sizer); sized {
		return weight(list, limit)
	}
	return 1 + lengthOf(list)
}

// searching is the price of a search that begins anew at each place.
func searching(args []ref.Val, _ uint64) uint64 {
	return units(1+textOf(args[0])) * (1 + textOf(args[1]))
}

// replacing is a price for each byte of what it makes.
func replacing(args []ref.Val, _ uint64) uint64 {
	in, isText := args[0].(types.String)
	before, isToo := args[1].(types.String)
	if !isText || !isToo {
		return 1
	}
	return units(textOf(in)) + textOf(in) + count(strings.Count(string(in), string(before)))*textOf(args[2])
}

// joining is a price for each byte of what it makes.
func joining(args []ref.Val, limit uint64) uint64 {
	list, isList := args[0].(traits.Lister)
	if !isList {
		return 1
	}
	between := uint64(0)
	if len(args) > 1 {
		between = textOf(args[1])
	}
	return weight(list, limit)*10 + lengthOf(list)*between
}

// formatting is a price for each byte of what it makes, about.
func formatting(args []ref.Val, limit uint64) uint64 {
	return textOf(args[0]) + weight(args[1], limit)*10
}

// weight is the price of looking at all that a value has in it, or more than limit.
func weight(value any, limit uint64) uint64 {
	sum := uint64(1)
	switch v := value.(type) {
	case string:
		return sum + units(count(len(v)))
	case types.String:
		return sum + units(count(len(v)))
	case []any:
		for i := 0; i < len(v) && sum <= limit; i++ {
			sum += weight(v[i], limit-sum)
		}
	case map[string]any:
		for key, of := range v {
			if sum += units(count(len(key))); sum > limit {
				break
			}
			sum += weight(of, limit-sum)
		}
	case traits.Lister:
		for i, n := types.Int(0), v.Size().(types.Int); i < n && sum <= limit; i++ {
			sum += weight(v.Get(i), limit-sum)
		}
	case traits.Mapper:
		for it := v.Iterator(); sum <= limit && it.HasNext() == types.True; {
			key := it.Next()
			if sum += weight(key, limit-sum); sum <= limit {
				sum += weight(v.Get(key), limit-sum)
			}
		}
	}
	return sum
}
