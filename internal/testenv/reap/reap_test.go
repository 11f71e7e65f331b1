// SPDX-License-Identifier: Apache-2.0

package reap_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv/reap"
)

// helperVariable makes the test binary behave like a killed one.
const helperVariable = "REAP_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperVariable) != "" {
		if err := helper(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		select {} // until killed
	}
	os.Exit(m.Run())
}

// helper starts a long-running process and prints its folder. The process keeps standard output
// open, so that its end is visible.
func helper() error {
	dir, err := reap.Dir()
	if err != nil {
		return err
	}
	cmd := exec.Command("sleep", "1000")
	cmd.Stdout = os.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := reap.Process("sleep", cmd.Process, "KILL"); err != nil {
		return err
	}
	fmt.Println(dir)
	// The timer prevents the runtime from detecting a deadlock.
	time.AfterFunc(time.Hour, func() {})
	return nil
}

func TestProcess_EndsWithKilledBinary(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperVariable+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewReader(out)
	dir, err := lines.ReadString('\n')
	require.NoError(t, err)
	dir = strings.TrimSpace(dir)
	require.DirExists(t, dir)

	require.NoError(t, cmd.Process.Kill())
	_, err = io.Copy(io.Discard, lines) // returns when the process has ended
	require.NoError(t, err)
	require.Error(t, cmd.Wait(), "it was killed")
	require.Eventually(t, func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	}, time.Minute, 10*time.Millisecond)
}
