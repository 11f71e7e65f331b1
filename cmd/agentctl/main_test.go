// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheSecondSignalEndsTheProcess: of one that does not heed the first. It is this test
// in a process of its own.
func TestTheSecondSignalEndsTheProcess(t *testing.T) {
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

// TestProblemsDoNotSteerTheTerminal: they say what others wrote.
func TestProblemsDoNotSteerTheTerminal(t *testing.T) {
	t.Parallel()
	err := problemOf(&http.Response{StatusCode: http.StatusConflict, Body: io.NopCloser(strings.NewReader(
		`{"code":"con\u001bflict","detail":"the agent \u001b[2J is\nnot \u009bthere"}`))})
	require.EqualError(t, err, "409 con\\u001bflict: the agent \\u001b[2J is\nnot \\u009bthere")
}
