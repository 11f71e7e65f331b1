// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// listenConfig configures an inbound or sync webhook.
type listenConfig struct {
	RequireAuthentication *bool  `json:"require_authentication"`
	FilesRequired         *bool  `json:"files_required"`
	TimeoutSeconds        *int32 `json:"timeout_seconds"`
}

// applyConfig reads a config in its REST shape into the spec.
func applyConfig(spec *v1alpha1.ConnectorSpec, config json.RawMessage) error {
	if len(config) == 0 {
		config = json.RawMessage("{}")
	}
	var in listenConfig
	if err := decodeConfig(config, &in); err != nil {
		return err
	}
	if in.FilesRequired != nil && *in.FilesRequired {
		return invalid(notSupported("body.config.files_required"))
	}
	if t := in.TimeoutSeconds; t != nil {
		if spec.Mode == v1alpha1.ModeInbound {
			return invalid(FieldError{Location: "body.config.timeout_seconds", Message: "is for mode sync: an inbound webhook answers at once"})
		}
		if *t < 1 || *t > 900 {
			return invalid(FieldError{Location: "body.config.timeout_seconds", Message: "must be 1 to 900"})
		}
	}
	spec.Webhook = &v1alpha1.WebhookConnector{RequireAuthentication: in.RequireAuthentication, TimeoutSeconds: in.TimeoutSeconds}
	return nil
}

// decodeConfig refuses fields that the type does not have.
func decodeConfig(config json.RawMessage, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(config))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil {
		return nil
	}
	if unknown, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return invalid(FieldError{Location: "body.config." + strings.Trim(unknown, `"`), Message: "is no field of this type and mode"})
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return invalid(FieldError{Location: strings.TrimSuffix("body.config."+wrong.Field, "."), Message: "must not be a JSON " + wrong.Value})
	}
	return invalid(FieldError{Location: "body.config", Message: "is no JSON object"})
}

// showConfig is the config in its REST shape, defaults filled in.
func showConfig(conn *v1alpha1.Connector) map[string]any {
	out := map[string]any{"require_authentication": conn.RequiresAuthentication(), "files_required": false}
	if conn.Spec.Mode == v1alpha1.ModeSync {
		out["timeout_seconds"] = int(conn.Timeout().Seconds())
	}
	return out
}
