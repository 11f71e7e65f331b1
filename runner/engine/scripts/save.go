// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"context"
	"encoding/json"
	"time"

	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/httptool"
	"github.com/agentplatform/agentplatform/runner/script"
)

// saveTimeout limits the request of http.save.
const saveTimeout = time.Minute

// saveRequest are the arguments of http.save.
type saveRequest struct {
	URL     string
	Headers map[string]script.Text
	Name    string
}

// readSave reads the arguments of http.save. Its error is one for the script.
func readSave(args json.RawMessage) (*saveRequest, error) {
	r := &saveRequest{}
	if err := exactjson.Decode(args, r); err != nil {
		return nil, script.Fail("an argument of the request has a wrong type")
	}
	return r, nil
}

// saveFile requests a file.
func (h *host) saveFile(ctx context.Context, r *saveRequest) (engine.NewFile, error) {
	variables, err := h.variables()
	if err != nil {
		return engine.NewFile{}, err
	}
	out := httptool.Request{URL: r.URL, Timeout: saveTimeout}
	if err := addHeaders(&out, r.Headers, variables); err != nil {
		return engine.NewFile{}, err
	}
	return h.cfg.HTTP.Save(ctx, out, r.Name)
}
