// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// rawEntry returns an entry of a tar archive with a valid header, of any type and size. archive/tar cannot write every entry
// that it reads.
func rawEntry(kind byte, name string, data []byte) []byte {
	header := make([]byte, 512)
	copy(header, name)
	copy(header[100:], "0000644\x00")
	copy(header[124:], fmt.Sprintf("%011o\x00", len(data)))
	header[156] = kind
	copy(header[257:], "ustar\x0000")
	if kind == tar.TypeGNUSparse {
		copy(header[257:], "ustar  \x00")
		copy(header[483:], "00000000000\x00") // its real size, after four pieces that are not there
	}
	copy(header[148:], "        ")
	sum := 0
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", sum))
	padded := append(header, data...)
	return append(padded, make([]byte, (512-len(data)%512)%512)...)
}

// paxRecords returns the records of an extended header.
func paxRecords(records ...string) []byte {
	var out []byte
	for _, r := range records {
		size := len(r) + len(" \n")
		for size != len(fmt.Sprint(size))+len(r)+len(" \n") {
			size = len(fmt.Sprint(size)) + len(r) + len(" \n")
		}
		out = fmt.Appendf(out, "%d %s\n", size, r)
	}
	return out
}

// sparseFile returns a file with a size in its header and no data in the archive.
func sparseFile(name, size string) []byte {
	return append(
		rawEntry('x', "pax", paxRecords("GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name="+name, "GNU.sparse.realsize="+size)),
		rawEntry(tar.TypeReg, "GNUSparseFile.0/x", []byte("0\n"+strings.Repeat("\x00", 510)))...)
}

func TestUnpack_RejectsEntries(t *testing.T) {
	t.Parallel()
	const mostInt64 = "9223372036854775807"
	agent := rawEntry(tar.TypeReg, "agents/a.yaml", []byte("x"))
	oldSparse := rawEntry(tar.TypeGNUSparse, "agents/b.yaml", nil)
	for name, tt := range map[string]struct {
		entries [][]byte
		want    error
		says    string
	}{
		"total beyond int64":    {[][]byte{agent, sparseFile("agents/b.yaml", mostInt64)}, bundle.ErrInvalid, "sparse"},
		"sparse and small":      {[][]byte{sparseFile("agents/b.yaml", "1024")}, bundle.ErrInvalid, "sparse"},
		"sparse of old GNU tar": {[][]byte{agent, oldSparse}, bundle.ErrInvalid, "agents/b.yaml"},
		"folder over a file":    {[][]byte{agent, rawEntry(tar.TypeReg, "agents/a.yaml/b.yaml", nil)}, bundle.ErrInvalid, "conflicts with another entry"},
		"file over a folder":    {[][]byte{rawEntry(tar.TypeReg, "agents/a/b/c.yaml", nil), rawEntry(tar.TypeReg, "agents/a", nil)}, bundle.ErrInvalid, "conflicts with another entry"},
	} {
		archive := append(bytes.Join(tt.entries, nil), make([]byte, 1024)...)
		readers := map[string]func(packed []byte) error{
			"bundle": func(packed []byte) error {
				_, err := bundle.Unpack(bytes.NewReader(packed), digestOf(packed))
				return err
			},
			"upload": func(packed []byte) error { _, err := unpackUpload(packed); return err },
		}
		for reader, unpack := range readers {
			t.Run(reader+"/"+name, func(t *testing.T) {
				t.Parallel()
				err := unpack(packedAs(t, archive, true))
				require.ErrorIs(t, err, tt.want)
				require.ErrorContains(t, err, tt.says)
			})
		}
	}
}
