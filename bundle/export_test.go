// SPDX-License-Identifier: Apache-2.0

package bundle

// FullSchema is Schema with all keys and values that the parser knows, also unsupported ones.
func FullSchema(kind Kind) ([]byte, error) { return schemaBuilder{full: true}.encode(kind) }
