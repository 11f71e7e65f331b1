// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page on traces names the version of the collector that the tests use.
func TestDocs_CollectorVersion(t *testing.T) {
	t.Parallel()
	used := regexp.MustCompile(`collector/receiver/otlpreceiver v(\S+)`).FindStringSubmatch(page(t, "test/clients/otelcollector/go.mod"))
	require.NotNil(t, used)
	require.Contains(t, page(t, "docs/export-traces.md"), "OpenTelemetry Collector, version "+used[1]+".")
}
