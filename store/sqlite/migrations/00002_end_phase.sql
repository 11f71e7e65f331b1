-- SPDX-License-Identifier: Apache-2.0

-- +goose Up

-- The phase in which a deployment failed or was cancelled; '' for those that ended
-- before there was this column.
ALTER TABLE deployments ADD COLUMN end_phase TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE deployments DROP COLUMN end_phase;
