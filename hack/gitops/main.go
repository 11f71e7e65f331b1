// SPDX-License-Identifier: Apache-2.0

// Command gitops simulates Argo CD for a namespace with the engine of Argo CD. The command sync applies the manifests on
// standard input to the cluster. The command diff prints the differences between the cluster and the manifests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// limit is the timeout of one call. A sync waits until the applied objects exist.
const limit = 2 * time.Minute

// Exit codes: a difference is no error.
const (
	exitFailed  = 1
	exitDiffers = 2
)

var errDiffers = errors.New("the cluster differs from the manifests")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gitops:", err)
		if errors.Is(err, errDiffers) {
			os.Exit(exitDiffers)
		}
		os.Exit(exitFailed)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	flags := flag.NewFlagSet("gitops [flags] sync|diff < manifests", flag.ContinueOnError)
	a := application{out: out}
	flags.StringVar(&a.name, "app", "app", "name of the application, by which it knows its objects")
	flags.StringVar(&a.namespace, "namespace", "default", "namespace of the objects")
	flags.BoolVar(&a.serverSide, "server-side", false, "apply and compare on the server, as with ServerSideApply=true and ServerSideDiff=true")
	if err := flags.Parse(args); err != nil {
		return err
	}
	manifests, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("reading the manifests: %w", err)
	}
	target, err := kube.SplitYAML(manifests)
	if err != nil {
		return fmt.Errorf("reading the manifests: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return fmt.Errorf("reading KUBECONFIG: %w", err)
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	if err := a.connect(config); err != nil {
		return err
	}
	defer a.close()
	switch flags.Arg(0) {
	case "sync":
		return a.sync(ctx, target)
	case "diff":
		return a.diff(target)
	default:
		return errors.New("say sync or diff")
	}
}
