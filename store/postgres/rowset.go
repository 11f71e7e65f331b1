// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// rowset declares the columns of rows that a statement gets: one array per column, and one argument per array. A statement that is
// prepared once takes any number of rows.
type rowset[R any] []column[R]

// column is a column of rows R.
type column[R any] struct {
	name, kind string // kind is the SQL type of a value
	array      func(rows []R) any
}

// columnValue has the Go types of columns. Pointers, and UUIDs without Valid, are NULL.
type columnValue interface {
	pgtype.UUID | string | *string | int64 | *int64 | bool | []byte
}

// columnOf declares a column with its value of a row.
func columnOf[R any, V columnValue](name string, value func(row *R) V) column[R] {
	return column[R]{name: name, kind: sqlTypeOf[V](), array: func(rows []R) any {
		out := make([]V, len(rows))
		for i := range rows {
			out[i] = value(&rows[i])
		}
		return out
	}}
}

// uuidColumn declares a column of UUIDs.
func uuidColumn[R any](name string, value func(row *R) uuid.UUID) column[R] {
	return columnOf(name, func(row *R) pgtype.UUID { return validUUID(value(row)) })
}

func sqlTypeOf[V columnValue]() string {
	switch v := any(*new(V)).(type) {
	case pgtype.UUID:
		return "uuid"
	case string, *string:
		return "text"
	case int64, *int64:
		return "bigint"
	case bool:
		return "boolean"
	case []byte:
		return "bytea"
	default:
		panic(fmt.Sprintf("no SQL type for a column of %T", v)) // columnValue has no other types
	}
}

// fromClause returns the rows as a table of a FROM clause. Their arrays are the arguments from $first.
func (s rowset[R]) fromClause(first int, alias string) string {
	arrays, names := make([]string, len(s)), make([]string, len(s))
	for i, c := range s {
		arrays[i], names[i] = s.arrayParameter(first, c.name), c.name
	}
	return "unnest(" + strings.Join(arrays, ", ") + ") AS " + alias + " (" + strings.Join(names, ", ") + ")"
}

// arrayParameter returns the argument with the values of a column.
func (s rowset[R]) arrayParameter(first int, name string) string {
	for i, c := range s {
		if c.name == name {
			return fmt.Sprintf("$%d::%s[]", first+i, c.kind)
		}
	}
	panic("a statement names the column " + name + ", which its rows do not have")
}

// arguments returns the arguments of rows.
func (s rowset[R]) arguments(rows []R) []any {
	out := make([]any, len(s))
	for i, c := range s {
		out[i] = c.array(rows)
	}
	return out
}

func validUUID(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

func nullableUUID(id *uuid.UUID) pgtype.UUID {
	if id == nil {
		return pgtype.UUID{}
	}
	return validUUID(*id)
}
