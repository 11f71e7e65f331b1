// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/runner/script"
)

// sendConnector sends the value under the key payload.
func (h *host) sendConnector(ctx context.Context, args map[string]any) (json.RawMessage, error) {
	name, isText := args["action_name"].(string)
	if !isText {
		return nil, script.Fail("action_name must be a text, the name of a connector")
	}
	envelope, _ := args["payload"].(map[string]any)
	payload, has := envelope["payload"]
	if !has || len(envelope) > 1 {
		return nil, script.Fail(`the second argument must be a map with the key payload alone, such as {"payload": {"order": 4711}}`)
	}
	return answerOf(h.effects.SendConnector(ctx, name, payload))
}

// maxChunk limits the bytes of a file in an answer, so that their base64 fits into a message. It has no padding inside of
// a file, because it is a multiple of three.
const maxChunk = 600 << 10

// readFile returns a part of an attachment in base64. Attachments are the same in each attempt.
func (h *host) readFile(args json.RawMessage) (json.RawMessage, error) {
	var request struct{ Index, Offset int }
	if err := exactjson.Decode(args, &request); err != nil {
		return nil, fmt.Errorf("reading the request of a script: %w", err)
	}
	files := h.scope.Files()
	if request.Index < 0 || request.Index >= len(files) || request.Offset < 0 {
		return nil, script.Fail("the run has no such file")
	}
	data := files[request.Index].Data
	begin := min(request.Offset, len(data))
	end := min(begin+maxChunk, len(data))
	return json.Marshal(map[string]any{"data": data[begin:end], "more": end < len(data)})
}
