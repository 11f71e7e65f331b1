// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"fmt"
	"testing"

	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
)

// The page docs/reference/limits.md states the limits of each port.
func TestReference_ListsLimits(t *testing.T) {
	refpage.CheckPart(t, "limits.md", "connections", refpage.LimitTable("Each port", []refpage.Limit{
		{Resource: "Connections", Value: fmt.Sprintf("`--max-connections`, by default %d", DefaultConnections), Beyond: "See below."},
		{
			Resource: "Request line and headers", Value: fmt.Sprintf("%s, within %s", refpage.Bytes(maxHeaderBytes), refpage.Time(readHeaderTimeout)),
			Beyond: "431, and the server closes the connection. The server may accept about 4 KiB more.",
		},
		{Resource: "Time between two requests of a connection", Value: refpage.Time(idleTimeout), Beyond: "The server closes the connection."},
		{
			Resource: fmt.Sprintf("Time for %s of a response", refpage.Bytes(writePiece)), Value: refpage.Time(writeTimeout),
			Beyond: "The server closes the connection.",
		},
	}))
}
