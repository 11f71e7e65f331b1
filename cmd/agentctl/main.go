// SPDX-License-Identifier: Apache-2.0

// Command agentctl is the command line of Agent Platform. Under the name kubectl-agentplatform it is a plugin of kubectl.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/cmd/internal/scriptchild"
)

func main() {
	ctx := untilSignal(context.Background())
	name := "agentctl"
	if plugin, ok := strings.CutPrefix(filepath.Base(os.Args[0]), "kubectl-"); ok {
		name = "kubectl " + plugin
	}
	root := newRootCommand(name)
	messages := newOutput(os.Stderr)
	root.SetIn(newInput(os.Stdin))
	root.SetOut(newOutput(os.Stdout))
	root.SetErr(messages)
	if err := root.ExecuteContext(ctx); err != nil {
		printError(messages, name, err)
		os.Exit(exitCode(err))
	}
}

// printError prints the error of a command. Other users wrote parts of it, so it has escapes for characters that are not printable.
func printError(messages io.Writer, name string, err error) {
	fmt.Fprintln(messages, name+":", printableLines(err.Error()))
}

// untilSignal returns a context that the first signal ends. The second signal ends the process at once.
func untilSignal(parent context.Context) context.Context {
	ctx, end := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		first := <-signals
		signal.Stop(signals)
		end(errors.New("stopped by the signal " + first.String()))
	}()
	return ctx
}

func newRootCommand(name string) *cobra.Command {
	root := &cobra.Command{
		Use:           "agentctl",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short:         "The command line of Agent Platform",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       ownVersion(),
	}
	keys := &cobra.Command{Use: "apikey", Short: "Create keys of the REST API"}
	keys.AddCommand(newAPIKeyCreateCommand())
	store := &cobra.Command{Use: "store", Short: "Manage the data store"}
	store.AddCommand(newStoreAdoptCommand(), newStoreRebuildRollupsCommand(), newStoreBackupCommand(), newStoreRestoreCommand())
	root.AddCommand(scriptchild.New(),
		newInitCommand(), newLintCommand(), newRunCommand(), newTestCommand(), newSchemaCommand(),
		newStatusCommand(), newDeployCommand(), newDevCommand(), newPromoteCommand(), newActivateCommand(), newRollbackCommand(),
		newCancelCommand(), newRedeployCommand(), newDeployAnywayCommand(), newLogsCommand(),
		newEnvCommand(), newRunsCommand(), newConnectorsCommand(), newTriggerCommand(), newListenCommand(), newReplayCommand(),
		keys, newKeysCommand(), store, newVersionCommand(),
	)
	addCompletions(root)
	renameProgram(root, name)
	flagenv.Bind(root)
	return root
}
