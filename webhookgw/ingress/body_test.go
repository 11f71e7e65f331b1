// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// judge says why a body is no input.
func judge(body []byte) error {
	c := newContent()
	_, _ = c.Write(body) // never fails
	return c.problem()
}

func TestAttachmentsAreFoundHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]bool{
		`{"files":[{"data":"x"}]}`:                                true,
		`{"f\u0069les":[{"data":"x"}]}`:                           true,
		`{"files":[{"\u0064ata":"x"}]}`:                           true,
		`{"files":[{"data":"x"}],"files":0}`:                      true,
		`{"files":0,"a":{},"files":[{"data":null}]}`:              true,
		`{"files":[0,[],{},{"name":{"data":1},"data":"x"}]}`:      true,
		"{\n\"files\" :\t[ { \"a\" : \"]}\" , \"data\" : 1 } ] }": true,

		`{}`:                                   false,
		`{"files":["data",{"name":"data"}]}`:   false,
		`{"files":{"data":"x"}}`:               false,
		`{"files":{"a":{"data":"x"}}}`:         false,
		`{"files":[[{"data":"x"}]]}`:           false,
		`{"files":[{"a":{"data":"x"}}]}`:       false,
		`{"files":[["data",{"data":"x"}],{}]}`: false,
		`{"a":{"files":[{"data":"x"}]}}`:       false,
		`{"files":[0],"a":[{"data":"x"}]}`:     false,
		`{"files":0,"a":[{"data":"x"}]}`:       false,
		`{"Files":[{"data":"x"}]}`:             false,
	} {
		require.Equal(t, want, judge([]byte(body)) != nil, body)
	}
}

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
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := judge(body.Bytes())
			runtime.ReadMemStats(&after)
			require.NoError(t, err)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(body.Len()/16))
		})
	}
}
