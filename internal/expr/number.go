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

// maxExact is the largest integer below which all integers have different doubles.
const maxExact = 1<<53 - 1

// values converts decoded JSON to CEL values. Numbers become doubles, as CEL does for JSON, unless
// a double cannot represent them, because two IDs must stay different. Integers beyond 2^53 become
// ints or uints, and other numbers become longNumbers.
type values struct{ types.Adapter }

// adapter is the only instance of values.
var adapter = values{types.DefaultTypeAdapter}

// withNumbers configures an environment with adapter and conversions of long numbers.
var withNumbers = []cel.EnvOption{
	cel.CustomTypeAdapter(adapter), longNumberTo("double", cel.DoubleType), longNumberTo("string", cel.StringType),
}

// longNumberTo returns an overload that converts long numbers.
func longNumberTo(function string, to *cel.Type) cel.EnvOption {
	return cel.Function(function, cel.Overload("long_number_to_"+function, []*cel.Type{longNumberType}, to,
		cel.UnaryBinding(func(n ref.Val) ref.Val { return n.ConvertToType(to) })))
}

// withValues replaces numbers in decoded JSON with CEL values, so that they are converted only
// once. It changes lists and maps in place.
func withValues(decoded any) any {
	switch v := decoded.(type) {
	case json.Number:
		return numberOf(v)
	case map[string]any:
		for key, value := range v {
			v[key] = withValues(value)
		}
	case []any:
		for i, value := range v {
			v[i] = withValues(value)
		}
	}
	return decoded
}

// NativeToValue implements types.Adapter.
func (a values) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case ref.Val:
		return v
	case json.Number:
		return numberOf(v)
	case map[string]any:
		return types.NewStringInterfaceMap(a, v)
	case []any:
		return types.NewDynamicList(a, v)
	}
	return a.Adapter.NativeToValue(value)
}

// numberOf converts a JSON number for expressions.
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

// longNumber is a number with more digits than CEL's numbers. It equals only a number of the same
// value, and so never a literal of an expression. It has no order and no arithmetic unless double()
// rounds it.
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
		f, _ := exactjson.Float64(json.Number(n)) // infinite beyond all doubles
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
