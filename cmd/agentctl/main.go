// SPDX-License-Identifier: Apache-2.0

// Command agentctl is the command line of Agent Platform. Under the name
// kubectl-agentplatform it is a plugin of kubectl.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
)

func main() {
	ctx := untilSignal(context.Background())
	name := "agentctl"
	if plugin, ok := strings.CutPrefix(filepath.Base(os.Args[0]), "kubectl-"); ok {
		name = "kubectl " + plugin
	}
	root := newRootCommand(name)
	messages := toTerminal(os.Stderr)
	root.SetIn(fromKeyboard(os.Stdin))
	root.SetOut(toTerminal(os.Stdout))
	root.SetErr(messages)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(messages, name+":", printableLines(err.Error()))
		os.Exit(exitCode(err))
	}
}

// untilSignal is a context that the first signal ends; the second one ends the process,
// whatever it is at.
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
	keys := &cobra.Command{Use: "apikey", Short: "Keys of the REST API"}
	keys.AddCommand(newAPIKeyCreateCommand())
	store := &cobra.Command{Use: "store", Short: "The data store"}
	store.AddCommand(newStoreAdoptCommand(), newStoreRebuildRollupsCommand(), newStoreBackupCommand(), newStoreRestoreCommand())
	root.AddCommand(keys, store, newKeysCommand(), newReplayCommand(), newTriggerCommand(), newListenCommand(), newConnectorsCommand(),
		newStatusCommand(), newDeployCommand(), newDevCommand(), newActivateCommand(), newRollbackCommand(), newCancelCommand(), newRedeployCommand(), newDeployAnywayCommand(), newLogsCommand(), newRunsCommand(), newInitCommand(),
		newLintCommand(),
		newTestCommand(),
		newEnvCommand(),
		newSchemaCommand(),
		newVersionCommand(),
		newPromoteCommand())
	completeByServer(root)
	showAs(root, name)
	flagenv.Bind(root)
	return root
}
