// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"regexp"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// ConnectorPath names a connector.
type ConnectorPath struct {
	ProjectPath
	ConnectorID ID `path:"connector_id" resource:"connector" doc:"The connector."`
}

// ConnectorType is the type of a connector.
type ConnectorType string

func (ConnectorType) Schema(r huma.Registry) *huma.Schema {
	var values []string
	for _, t := range v1alpha1.ConnectorTypes {
		values = append(values, string(t))
	}
	return Enumeration(r, "ConnectorType", "The type of a connector.", values...)
}

// ConnectorMode is the direction of a connector.
type ConnectorMode string

// Schema describes the mode.
func (ConnectorMode) Schema(r huma.Registry) *huma.Schema {
	var values []string
	for _, m := range v1alpha1.ConnectorModes {
		values = append(values, m.EnumValue())
	}
	return Enumeration(r, "ConnectorMode", "The direction of a connector.", values...)
}

var (
	settingPath = regexp.MustCompile(`^spec\.([a-z]+)(?:\.([a-zA-Z]+))?$`)
	capital     = regexp.MustCompile(`[A-Z]`)
)

// settingLocation returns the field of the request for a field with settings of a connector, or "". The name of a setting follows from
// the name of its field.
func settingLocation(path string) string {
	part := settingPath.FindStringSubmatch(path)
	if part == nil || !slices.Contains(v1alpha1.ConnectorTypes, v1alpha1.ConnectorType(part[1])) {
		return ""
	}
	return strings.TrimSuffix("body.config."+strings.ToLower(capital.ReplaceAllString(part[2], "_$0")), ".")
}
