// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"math"
	"reflect"
	"strconv"
)

// checkNumber holds a number to the tags of its field: min and max are the least
// and the most that it may be, over is what it must be more than, without says
// what holds without the key. It sees what is written only, so that a zero is a
// number like any other and never stands for the default.
func (d *decoder) checkNumber(n *node, v reflect.Value, tag reflect.StructTag, path string) {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	var number float64
	switch {
	case n.null():
		return
	case v.CanInt():
		number = float64(v.Int())
	case v.CanFloat():
		number = v.Float()
	default:
		return
	}
	least, most := bound(tag, "min", math.Inf(-1)), bound(tag, "max", math.Inf(1))
	over := bound(tag, "over", math.Inf(-1))
	if number >= least && number <= most && number > over {
		return
	}
	must := "at least " + tag.Get("min")
	if tag.Get("max") != "" {
		must = "between " + tag.Get("min") + " and " + tag.Get("max")
	} else if tag.Get("over") != "" {
		must = "more than " + tag.Get("over")
	}
	if without := tag.Get("without"); without != "" {
		must += "; leave it out for " + without
	}
	d.outside++
	d.problems.add(n.pos, "%q must be %s", path, must)
}

// bound is the number in a tag. One that cannot be read admits nothing.
func bound(tag reflect.StructTag, key string, absent float64) float64 {
	text, ok := tag.Lookup(key)
	if !ok {
		return absent
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return number
}
