// SPDX-License-Identifier: Apache-2.0

package sqldb

// NextConnectorVersion increases the version of a connector. Versions are times if possible. So a connector
// that is deleted and re-created with the same ID never returns to a version that a gateway has
// cached.
const NextConnectorVersion = `CASE WHEN connectors.version >= now_us() THEN connectors.version + 1 ELSE now_us() END`
