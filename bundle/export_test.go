// SPDX-License-Identifier: Apache-2.0

package bundle

// FullSchema is Schema with what the parser knows and this release does not do.
func FullSchema(kind Kind) ([]byte, error) {
	root, err := fullSchema(kind)
	if err != nil {
		return nil, err
	}
	return root.encoded(kind)
}
