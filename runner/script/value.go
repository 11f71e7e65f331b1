// SPDX-License-Identifier: Apache-2.0

package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.starlark.net/starlark"

	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

// MaxDepth limits nested lists and maps of values that enter or leave a script.
const MaxDepth = 64

var (
	errTooDeep  = fmt.Errorf("the value has more than %d nested lists and maps", MaxDepth)
	errTooLarge = errors.New("the value is too large")
)

// longNumber is a number that no float equals, such as 0.1000000000000000000001. It leaves the script with the digits that
// it came with, and equals only a number of the same value.
type longNumber json.Number

// String returns the digits, so float(str(n)) rounds the number.
func (n longNumber) String() string        { return string(n) }
func (longNumber) Type() string            { return "long_number" }
func (longNumber) Freeze()                 {}
func (longNumber) Truth() starlark.Bool    { return true } // Zero is a float.
func (n longNumber) Hash() (uint32, error) { return starlark.String(n).Hash() }

// decodeValue returns the value of a JSON text. Maps keep the order of their keys.
func decodeValue(text []byte) (starlark.Value, error) {
	if err := jsonscan.Check(text); err != nil {
		return nil, fmt.Errorf("invalid JSON: %w", err)
	}
	d := decoder{jsonscan.New(text)}
	token, _ := d.scanner.Next()
	return d.readValue(token, 0)
}

type decoder struct{ scanner *jsonscan.Scanner }

func (d decoder) readValue(token jsonscan.Token, depth int) (starlark.Value, error) {
	switch token.Kind {
	case jsonscan.Scalar:
		return decodeScalar(token.Text)
	case jsonscan.OpenObject, jsonscan.OpenList:
		if depth == MaxDepth {
			return nil, errTooDeep
		}
	}
	if token.Kind == jsonscan.OpenList {
		return d.readList(depth + 1)
	}
	return d.readObject(depth + 1)
}

func (d decoder) readList(depth int) (starlark.Value, error) {
	var items []starlark.Value
	for {
		token, ok := d.scanner.Next()
		if !ok || token.Kind == jsonscan.CloseList {
			return starlark.NewList(items), nil
		}
		item, err := d.readValue(token, depth)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
}

func (d decoder) readObject(depth int) (starlark.Value, error) {
	var object starlark.Dict
	for {
		token, ok := d.scanner.Next()
		if !ok || token.Kind == jsonscan.CloseObject {
			return &object, nil
		}
		key, err := decodeText(token.Text)
		if err != nil {
			return nil, err
		}
		token, _ = d.scanner.Next()
		value, err := d.readValue(token, depth)
		if err != nil {
			return nil, err
		}
		if err := object.SetKey(key, value); err != nil {
			return nil, err
		}
	}
}

func decodeScalar(text []byte) (starlark.Value, error) {
	switch text[0] {
	case '"':
		return decodeText(text)
	case 'n':
		return starlark.None, nil
	case 't', 'f':
		return starlark.Bool(text[0] == 't'), nil
	}
	return decodeNumber(string(text))
}

func decodeText(quoted []byte) (starlark.String, error) {
	if text := string(quoted[1 : len(quoted)-1]); !strings.ContainsRune(text, '\\') {
		return starlark.String(text), nil
	}
	var text string
	err := exactjson.Decode(quoted, &text)
	return starlark.String(text), err
}

func decodeNumber(text string) (starlark.Value, error) {
	if !strings.ContainsAny(text, ".eE") {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return starlark.MakeInt64(n), nil
		}
		n, ok := new(big.Int).SetString(text, 10)
		if !ok {
			return nil, fmt.Errorf("invalid number")
		}
		return starlark.MakeBigInt(n), nil
	}
	if f, same := exactjson.Float64(json.Number(text)); same {
		return starlark.Float(f), nil
	}
	return longNumber(text), nil
}

// encodeValue returns a value as JSON of at most limit bytes. Tuples become lists. Functions, sets, bytes, NaN and infinite
// numbers are errors. A limit in bytes also ends lists that contain themselves or each other many times.
func encodeValue(value starlark.Value, limit int) (json.RawMessage, error) {
	e := encoder{limit: limit}
	if err := e.writeValue(value, 0); err != nil {
		return nil, err
	}
	return e.text, nil
}

type encoder struct {
	text  []byte
	limit int
	// sensitive allows texts with sensitive variables.
	sensitive bool
}

func (e *encoder) writeValue(value starlark.Value, depth int) error {
	if len(e.text) > e.limit {
		return errTooLarge
	}
	switch v := value.(type) {
	case starlark.NoneType:
		e.text = append(e.text, "null"...)
	case starlark.Bool:
		e.text = strconv.AppendBool(e.text, bool(v))
	case starlark.Int:
		return e.writeInteger(v)
	case starlark.Float:
		return e.writeFloat(float64(v))
	case longNumber:
		e.text = append(e.text, v...)
	case starlark.String:
		e.writeString(string(v))
	case *starlark.List:
		return e.writeList(v.Len(), v.Index, depth)
	case starlark.Tuple:
		return e.writeList(v.Len(), v.Index, depth)
	case *starlark.Dict:
		return e.writeObject(v, depth)
	case *contextMap:
		return e.writeObject(v.Dict, depth)
	case *fileMap:
		if err := v.readData(); err != nil {
			return err
		}
		return e.writeObject(v.Dict, depth)
	case *sensitiveText:
		if !e.sensitive {
			return errSensitive
		}
		return e.sensitiveText(v)
	default:
		return fmt.Errorf("a value of type %s is no JSON value", value.Type())
	}
	if len(e.text) > e.limit {
		return errTooLarge
	}
	return nil
}

// integer appends an integer. One decimal digit has more than three bits, so the limit is known before the digits are.
func (e *encoder) writeInteger(i starlark.Int) error {
	if n, ok := i.Int64(); ok {
		e.text = strconv.AppendInt(e.text, n, 10)
		return nil
	}
	big := i.BigInt()
	if digits := big.BitLen() * 3 / 10; digits > jsonscan.MaxNumber || digits > e.limit {
		return fmt.Errorf("an integer has more than %d digits", jsonscan.MaxNumber)
	}
	e.text = big.Append(e.text, 10)
	return nil
}

func (e *encoder) writeFloat(f float64) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return errors.New("NaN and infinite numbers are no JSON values")
	}
	format, begin := byte('f'), len(e.text)
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	e.text = strconv.AppendFloat(e.text, f, format, -1, 64)
	if !strings.ContainsAny(string(e.text[begin:]), ".e") {
		e.text = append(e.text, ".0"...)
	}
	return nil
}

func (e *encoder) writeString(text string) {
	const hex = "0123456789abcdef"
	e.text = append(e.text, '"')
	for i := 0; i < len(text) && len(e.text) <= e.limit; {
		c := text[i]
		switch {
		case c == '"' || c == '\\':
			e.text = append(e.text, '\\', c)
		case c == '\n':
			e.text = append(e.text, `\n`...)
		case c == '\r':
			e.text = append(e.text, `\r`...)
		case c == '\t':
			e.text = append(e.text, `\t`...)
		case c < ' ':
			e.text = append(e.text, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(text[i:]) // RuneError for bytes that are not UTF-8.
			e.text = utf8.AppendRune(e.text, r)
			i += size
			continue
		default:
			e.text = append(e.text, c)
		}
		i++
	}
	e.text = append(e.text, '"')
}

func (e *encoder) writeList(length int, index func(int) starlark.Value, depth int) error {
	if depth == MaxDepth {
		return errTooDeep
	}
	e.text = append(e.text, '[')
	for i := range length {
		if i > 0 {
			e.text = append(e.text, ',')
		}
		if err := e.writeValue(index(i), depth+1); err != nil {
			return err
		}
	}
	e.text = append(e.text, ']')
	return nil
}

func (e *encoder) writeObject(object *starlark.Dict, depth int) error {
	if depth == MaxDepth {
		return errTooDeep
	}
	e.text = append(e.text, '{')
	first := true
	for key, value := range object.Entries() {
		name, ok := key.(starlark.String)
		if !ok {
			return fmt.Errorf("a key of type %s is no JSON key", key.Type())
		}
		if !first {
			e.text = append(e.text, ',')
		}
		first = false
		e.writeString(string(name))
		e.text = append(e.text, ':')
		if err := e.writeValue(value, depth+1); err != nil {
			return err
		}
	}
	e.text = append(e.text, '}')
	return nil
}
