// SPDX-License-Identifier: Apache-2.0

package contextheader_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/contextheader"
)

func TestCheck_RejectsCredentials(t *testing.T) {
	t.Parallel()
	for header, wrong := range map[string]string{
		"X-GitHub-Event": "", "x_a": "", "a": "", strings.Repeat("a", contextheader.MaxName): "",
		"": "the name of a header", "-a": "the name of a header", "a b": "the name of a header", "a:": "the name of a header", "ä": "the name of a header",
		strings.Repeat("a", contextheader.MaxName+1): "the name of a header",
		"Authorization": "a credential", "COOKIE": "a credential", "x-hub-signature-256": "a credential", "Idempotency-Key": "a credential",
	} {
		t.Run(fmt.Sprintf("%.60s", header), func(t *testing.T) {
			if got := contextheader.Check(header); wrong == "" {
				require.Empty(t, got, header)
			} else {
				require.Contains(t, got, wrong, header)
			}
		})
	}
}
