// SPDX-License-Identifier: Apache-2.0

package script

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// hostileScripts are scripts that waste memory, time or output. None of them needs many steps.
var hostileScripts = map[string]string{
	"doubling list":        body(`x = ["a"]`, `for _ in range(60): x = x + x`, `return len(x)`),
	"doubling text":        body(`x = "a"`, `for _ in range(60): x = x + x`, `return len(x)`),
	"shared lists":         body(`x = ["a"]`, `for _ in range(60): x = [x, x]`, `return x`),
	"text of shared lists": body(`x = ["a"]`, `for _ in range(60): x = [x, x]`, `return str(x)`),
	"text of a deep list":  body(`x = []`, `for _ in range(3000000): x = [x]`, `return str(x)`),
	"deep list":            body(`x = []`, `for _ in range(3000000): x = [x]`, `return x`),
	"comparison":           body(`x = ["a"]`, `y = ["a"]`, `for _ in range(60):`, `  x = [x, x]`, `  y = [y, y]`, `return x == y`),
	"range":                body(`return list(range(1000000000))`),
	"endless loop":         body(`for _ in range(1000000000): pass`),
	"replace":              body(`x = "aa"`, `for _ in range(40): x = x.replace("a", x)`, `return len(x)`),
	"pattern replace":      body(`x = "aa"`, `for _ in range(40): x = re.sub("a", x, x)`, `return len(x)`),
	"repeat":               body(`return len("a" * (1 << 30))`),
	"list repeat":          body(`return len([1] * (1 << 29))`),
	"large integer":        body(`x = 10`, `for _ in range(60): x = x * x`, `return x`),
	"recursion by list":    body(`f = []`, `f.append(lambda: f[0]())`, `return f[0]()`),
	"result":               body(`return ["a" * 1000] * 10000`),
	"message of stop":      body(`stop("a" * 10000000)`),
	"error":                body(`fail("a" * 10000000)`),
	"argument":             body(`files.text("a" * 10000000)`),
	"global":               "x = [i for i in range(100000000)]\n\ndef run(): pass\n",
}

// lenient are hostile scripts whose error is one of the script and not of a limit.
var lenient = map[string]runerror.Code{
	"recursion by list": runerror.ScriptError, "error": runerror.ScriptError, "argument": runerror.ScriptError, "comparison": runerror.ScriptError, "repeat": runerror.ScriptError,
}

// A hostile script ends itself only, and a neighbour gets its results.
func TestPool_ConfinesHostileScripts(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{MaxChildren: 3})
	ctx, cancel := context.WithCancel(t.Context())
	var neighbour sync.WaitGroup
	neighbour.Go(func() {
		for ctx.Err() == nil {
			call := callOn(body("return 1"), "")
			call.Run = "neighbour"
			result, err := pool.Run(t.Context(), call, nil)
			require.NoError(t, err)
			require.Equal(t, "1", string(result.Value))
		}
	})
	t.Run("scripts", func(t *testing.T) {
		for name, source := range hostileScripts {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				call := callOn(source, "")
				call.Limits = LimitsOf(bundle.OwnerTool)
				code := runerror.ScriptLimit
				if other := lenient[name]; other != "" {
					code, call.Limits.OwnTime = other, time.Minute // fails at once; a loaded machine may need seconds to start it
				} else {
					call.Limits.OwnTime /= 5
				}
				result, err := pool.Run(t.Context(), call, nil)
				var failed *Error
				require.ErrorAs(t, err, &failed)
				require.Equal(t, code, failed.Code, failed.Detail())
				require.LessOrEqual(t, len(failed.Message), maxErrorText)
				require.Nil(t, result.Value)
				t.Log(failed.Message)
			})
		}
	})
	cancel()
	neighbour.Wait()
	pool.Close()
}

// The parent keeps a bounded part of what a script sends.
func TestPool_BoundsOutput(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	result, err := pool.Run(t.Context(), callOn(body(`for i in range(1000000): print("x" * 10000)`), ""), nil)
	if err != nil { // A slow machine needs more than the time of a tool.
		requireError(t, err, runerror.ScriptLimit, "the script needs more than 10s of computing time", "")
	}
	bytes := 0
	for _, line := range result.Logs {
		bytes += len(line.Text)
	}
	require.LessOrEqual(t, bytes, MaxLogs.Bytes)
	require.LessOrEqual(t, len(result.Logs), MaxLogs.Lines)

	answered := 0
	host := hostFunc(func(context.Context, Request) (json.RawMessage, error) { answered++; return json.RawMessage(`1`), nil })
	_, err = pool.Run(t.Context(), callOn(body(`for i in range(1000000): files.text("x" * 1000)`), ""), host)
	requireError(t, err, runerror.ScriptLimit, "the script asks for more than 100 reads", "tools/a.star:2:38")
	require.Equal(t, 100, answered)
}

// A source file can be as large as a repository allows, with any characters.
func TestPool_TakesLargeSources(t *testing.T) {
	t.Parallel()
	sources := map[string]string{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		sources["tools/"+name+".star"] = body("return 1") + "#" + strings.Repeat("\x01", bundle.MaxScriptSize-100)
	}
	call := callOn("", "")
	call.Sources = func() map[string]string { return sources }
	_, err := newPool(t, Options{}).Run(t.Context(), call, nil)
	require.NoError(t, err)
}

// The memory limit has bounds.
func TestMain_RejectsMemoryLimits(t *testing.T) {
	t.Parallel()
	for name, memory := range map[string]uint64{"small": MinMemory - 1, "large": MaxMemory + 1} {
		t.Run(name, func(t *testing.T) { require.ErrorContains(t, Main(memory), "must be between") })
	}
	_, err := newPool(t, Options{Command: []string{os.Args[0] + ".none"}}).Run(t.Context(), callOn("", ""), nil)
	require.ErrorContains(t, err, "starting the process of a script")
}
