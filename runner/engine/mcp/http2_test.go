// SPDX-License-Identifier: Apache-2.0

package mcp_test

import (
	"bytes"
	"net/http"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// writeHTTP2 writes an answer on a stream.
func writeHTTP2(framer *http2.Framer, id uint32, body string, header http.Header) {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	_ = encoder.WriteField(hpack.HeaderField{Name: ":status", Value: header[":status"][0]})
	for name, values := range header {
		if name != ":status" {
			_ = encoder.WriteField(hpack.HeaderField{Name: name, Value: values[0]})
		}
	}
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true})
	_ = framer.WriteData(id, true, []byte(body))
}
