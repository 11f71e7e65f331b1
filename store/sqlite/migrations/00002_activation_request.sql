-- +goose Up
-- When the last request to activate was made that was carried out.
ALTER TABLE deployments ADD COLUMN activation_requested_at INTEGER;
