-- SPDX-License-Identifier: Apache-2.0

-- +goose Up

-- The requests to the REST API that count at present, by project: the moments in
-- microseconds at which they were let through, oldest first. Not logged, so that
-- no request waits for the disk; a crash of the server empties it.
CREATE UNLOGGED TABLE request_windows (
    project_id uuid PRIMARY KEY,
    taken bigint[] NOT NULL,
    allowed boolean NOT NULL,
    at bigint NOT NULL
) WITH (fillfactor = 50);

-- +goose Down
DROP TABLE request_windows;
