// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/agentplatform/agentplatform/internal/exactjson"
)

// maxExact is the largest integer up to which no two integers have the same double.
const maxExact = 1<<53 - 1

// values makes values of CEL of decoded JSON. Its numbers are doubles, as CEL has it for JSON, except those
// that a double does not hold, because two IDs must not become one: integers beyond 2^53 are ints or uints,
// and anything else is a longNumber.
type values struct{ types.Adapter }

// adapter is the one instance of values.
var adapter = values{types.DefaultTypeAdapter}

// withNumbers makes an environment's values of JSON by adapter, and converts long numbers.
var withNumbers = []cel.EnvOption{
	cel.CustomTypeAdapter(adapter), longNumberTo("double", cel.DoubleType), longNumberTo("string", cel.StringType),
}

// longNumberTo has a function that converts numbers convert long ones too.
func longNumberTo(function string, to *cel.Type) cel.EnvOption {
	return cel.Function(function, cel.Overload("long_number_to_"+function, []*cel.Type{longNumberType}, to,
		cel.UnaryBinding(func(n ref.Val) ref.Val { return n.ConvertToType(to) })))
}

// NativeToValue implements types.Adapter.
func (a values) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case json.Number:
		return numberOf(v)
	case map[string]any:
		return types.NewStringInterfaceMap(a, v)
	case []any:
		return types.NewDynamicList(a, v)
	}
	return a.Adapter.NativeToValue(value)
}

// numberOf is a number of JSON as expressions have it.
func numberOf(n json.Number) ref.Val {
	if i, ok := exactjson.Int64(n); ok && (i > maxExact || i < -maxExact) {
		return types.Int(i)
	}
	if u, ok := exactjson.Uint64(n); ok && u > maxExact {
		return types.Uint(u)
	}
	if f, same := exactjson.Float64(n); same {
		return types.Double(f)
	}
	return longNumber(n)
}

// longNumber is a number with more digits than any number of CEL has. It is equal to a number of the same
// value alone, so never to one that an expression has written; it has no order and is not calculated with,
// unless double() rounds it.
type longNumber json.Number

// longNumberType is the type of a longNumber.
var longNumberType = cel.OpaqueType("long_number")

// Type implements ref.Val.
func (longNumber) Type() ref.Type { return longNumberType }

// Value implements ref.Val.
func (n longNumber) Value() any { return json.Number(n) }

// Equal implements ref.Val.
func (n longNumber) Equal(other ref.Val) ref.Val {
	o, isLong := other.(longNumber)
	return types.Bool(isLong && exactjson.EqualNumbers(json.Number(n), json.Number(o)))
}

// ConvertToType implements ref.Val.
func (n longNumber) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case types.StringType:
		return types.String(n)
	case types.DoubleType:
		f, _ := exactjson.Float64(json.Number(n)) // Infinite beyond all doubles.
		return types.Double(f)
	case types.TypeType:
		return longNumberType
	}
	return types.NewErr("a number of so many digits is no %s", to.TypeName())
}

// ConvertToNative implements ref.Val.
func (n longNumber) ConvertToNative(to reflect.Type) (any, error) {
	if to == reflect.TypeFor[json.Number]() || to.Kind() == reflect.Interface {
		return json.Number(n), nil
	}
	return nil, fmt.Errorf("converting a number of many digits to %s: not supported", to)
}
