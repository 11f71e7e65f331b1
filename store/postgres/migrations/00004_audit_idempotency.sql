-- SPDX-License-Identifier: Apache-2.0

-- +goose Up

-- The Idempotency-Key of the request; '' for one without, and for those that were
-- recorded before there was this column.
ALTER TABLE audit_log ADD COLUMN idempotency_key text NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE audit_log DROP COLUMN idempotency_key;
