// SPDX-License-Identifier: Apache-2.0

package connector_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/connector"
)

func TestCheckContextHeader_RejectsCredentials(t *testing.T) {
	t.Parallel()
	for header, wrong := range map[string]string{
		"X-GitHub-Event": "", "x_a": "", "a": "", strings.Repeat("a", connector.MaxContextHeaderName): "",
		"": "the name of a header", "-a": "the name of a header", "a b": "the name of a header", "a:": "the name of a header", "ä": "the name of a header",
		strings.Repeat("a", connector.MaxContextHeaderName+1): "the name of a header",
		"Authorization": "a credential", "COOKIE": "a credential", "x-hub-signature-256": "a credential", "Idempotency-Key": "a credential",
	} {
		t.Run(fmt.Sprintf("%.60s", header), func(t *testing.T) {
			if got := connector.CheckContextHeader(header); wrong == "" {
				require.Empty(t, got, header)
			} else {
				require.Contains(t, got, wrong, header)
			}
		})
	}
}
