// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

const (
	// maxValueDepth limits the depth of a value that is converted to JSON.
	maxValueDepth = 128
	// maxValueSize limits the size of a value that is converted to JSON, in about its bytes: an
	// expression can repeat one large value many times at little cost.
	maxValueSize = 1 << 20
)

// jsonConverter converts CEL values to values for json.Marshal. size is the size of its values so far.
type jsonConverter struct{ size int }

// convert converts a value. Numbers become json.Number. Keys must be texts.
func (c *jsonConverter) convert(value ref.Val, depth int) (any, error) {
	c.size += 1 + int(min(textSize(value), maxValueSize))
	switch {
	case depth > maxValueDepth:
		return nil, fmt.Errorf("it is nested more than %d levels deep", maxValueDepth)
	case c.size > maxValueSize:
		return nil, fmt.Errorf("it has more than %d bytes", maxValueSize)
	}
	switch v := value.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.String:
		return string(v), nil
	case types.Int:
		return json.Number(strconv.FormatInt(int64(v), 10)), nil
	case types.Uint:
		return json.Number(strconv.FormatUint(uint64(v), 10)), nil
	case types.Double:
		return jsonDouble(float64(v))
	case longNumber:
		return json.Number(v), nil
	case traits.Mapper:
		return c.convertMap(v, depth)
	case traits.Lister:
		return c.convertList(v, depth)
	}
	return nil, fmt.Errorf("it has a %s; convert it with string()", value.Type().TypeName())
}

// jsonDouble converts a double. An integral one below 2^53 has no fraction and no exponent.
func jsonDouble(v float64) (any, error) {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return nil, errors.New("it has a number that is not finite")
	case v == math.Trunc(v) && math.Abs(v) <= maxExact:
		return json.Number(strconv.FormatFloat(v, 'f', -1, 64)), nil
	}
	return json.Number(strconv.FormatFloat(v, 'g', -1, 64)), nil
}

func (c *jsonConverter) convertMap(m traits.Mapper, depth int) (any, error) {
	out := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, isText := key.(types.String)
		if !isText {
			return nil, fmt.Errorf("a key is a %s; keys are texts", key.Type().TypeName())
		}
		c.size += len(name)
		value, err := c.convert(m.Get(key), depth+1)
		if err != nil {
			return nil, err
		}
		out[string(name)] = value
	}
	return out, nil
}

func (c *jsonConverter) convertList(list traits.Lister, depth int) (any, error) {
	out := make([]any, 0, lengthOf(list))
	for it := list.Iterator(); it.HasNext() == types.True; {
		value, err := c.convert(it.Next(), depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, value)
	}
	return out, nil
}
