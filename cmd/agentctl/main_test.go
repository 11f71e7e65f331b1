// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The second signal ends a process that ignores the first. The test runs itself in another process.
func TestUntilSignal_SecondSignalEndsTheProcess(t *testing.T) {
	t.Parallel()
	const child = "AGENTCTL_TEST_SIGNALS"
	if os.Getenv(child) != "" {
		ctx := untilSignal(t.Context())
		fmt.Println("ready")
		<-ctx.Done()
		fmt.Println("ended")
		<-make(chan struct{})
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=20s")
	command.Env = append(os.Environ(), child+"=1")
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	lines := bufio.NewScanner(out)
	for _, want := range []string{"ready", "ended"} {
		require.True(t, lines.Scan())
		require.Equal(t, want, lines.Text())
		require.NoError(t, command.Process.Signal(syscall.SIGINT))
	}
	err = command.Wait()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, syscall.SIGINT, exit.Sys().(syscall.WaitStatus).Signal())
}

// Errors have text of other users, so they are printed with escapes.
func TestPrintError_EscapesControlCharacters(t *testing.T) {
	t.Parallel()
	var messages bytes.Buffer
	printError(&messages, "agentctl", problem(http.StatusConflict, "con\u001bflict: the agent \u001b[2J is\nnot \u009bthere"))
	require.Equal(t, "agentctl: 409 con\\u001bflict: the agent \\u001b[2J is\nnot \\u009bthere: \n", messages.String())
}
