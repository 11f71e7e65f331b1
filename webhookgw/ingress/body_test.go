// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv/memtest"
)

// TestCheckingABodyTakesLittleMemory: less than the body has, of bodies with as
// many parts as there is room for.
func TestCheckingABodyTakesLittleMemory(t *testing.T) { // not beside others, whose memory would count
	for name, shape := range map[string]struct{ begin, end, part string }{
		"list":   {`{"files":[0`, `]}`, `,0`},
		"fields": {`{"files":0`, `}`, `,"%d":0`},
		"files":  {`{"files":[0`, `]}`, `,{"":0}`},
		"escape": {`{"files":[{"":0`, `}]}`, `,"\u0064\u0061t":0`},
	} {
		t.Run(name, func(t *testing.T) {
			body := bytes.NewBufferString(shape.begin)
			for i := 0; body.Len() < MaxBody-100; i++ {
				part := shape.part
				if strings.Contains(part, "%d") {
					part = fmt.Sprintf(part, i)
				}
				body.WriteString(part)
			}
			body.WriteString(shape.end)
			memtest.AtMost(t, MaxBody/16, func() {
				in := newInline(bytes.NewReader(body.Bytes()), &attachments{})
				_, err := io.Copy(io.Discard, in)
				require.NoError(t, in.text.problem())
				require.NoError(t, err)
			})
		})
	}
}
