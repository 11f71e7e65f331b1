// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"context"
	"encoding/json"

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
