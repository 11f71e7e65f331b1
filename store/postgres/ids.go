// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// sendIDs makes a connection send IDs as sixteen bytes. pgx would convert each to text and back, as
// it does with all types that database/sql can convert.
func sendIDs(conn *pgx.Conn) {
	types := conn.TypeMap()
	types.TryWrapEncodePlanFuncs = append([]pgtype.TryWrapEncodePlanFunc{wrapID}, types.TryWrapEncodePlanFuncs...)
}

// id is an ID with an encoding that pgx knows.
type id uuid.UUID

// UUIDValue implements pgtype.UUIDValuer.
func (i id) UUIDValue() (pgtype.UUID, error) { return pgtype.UUID{Bytes: i, Valid: true}, nil }

func wrapID(value any) (plan pgtype.WrappedEncodePlanNextSetter, next any, ok bool) {
	plain, ok := value.(uuid.UUID)
	return &idPlan{}, id(plain), ok
}

// idPlan encodes an ID.
type idPlan struct{ next pgtype.EncodePlan }

// SetNext implements pgtype.WrappedEncodePlanNextSetter.
func (p *idPlan) SetNext(next pgtype.EncodePlan) { p.next = next }

// Encode implements pgtype.EncodePlan.
func (p *idPlan) Encode(value any, buf []byte) ([]byte, error) {
	return p.next.Encode(id(value.(uuid.UUID)), buf)
}
