// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// current uses the cluster of the current kubeconfig and never changes it.
type current struct{ Options }

// Access returns the first file of KUBECONFIG, or kubectl's default.
func (c *current) Access() (kubeconfig, kubectl string, err error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", "", fmt.Errorf("finding the kubeconfig: %w", err)
	}
	path := filepath.Join(home, ".kube", "config")
	if list := filepath.SplitList(os.Getenv("KUBECONFIG")); len(list) > 0 {
		path = list[0]
	}
	if _, err := os.Stat(path); err != nil {
		return "", "", fmt.Errorf("finding the kubeconfig of CLUSTER=current (set KUBECONFIG): %w", err)
	}
	return path, c.kubectl(), nil
}

// runKubectl runs kubectl and returns its output.
func (c *current) runKubectl(ctx context.Context, args ...string) (string, error) {
	_, kubectl, err := c.Access()
	if err != nil {
		return "", err
	}
	if kubectl == "" {
		return "", errors.New("CLUSTER=current needs kubectl on the PATH")
	}
	out, err := exec.CommandContext(ctx, kubectl, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("running kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}

// Up only asks whether the cluster answers.
func (c *current) Up(ctx context.Context) error {
	if _, err := c.runKubectl(ctx, "get", "--raw", "/readyz"); err != nil {
		return err
	}
	c.Log.Say("the cluster of the current kubeconfig answers")
	return nil
}

// Build does nothing: the cluster is already built.
func (c *current) Build(context.Context) error { return nil }

// Down leaves the cluster alone.
func (c *current) Down(context.Context) error {
	c.Log.Say("CLUSTER=current: that cluster is not this command's to take down")
	return nil
}

// Status prints the nodes.
func (c *current) Status(ctx context.Context) error {
	nodes, err := c.runKubectl(ctx, "get", "nodes")
	if err != nil {
		return errors.Join(ErrNotUp, err)
	}
	return c.printResult("%s", nodes)
}

// LoadImage knows the clusters that take images by hand.
func (c *current) LoadImage(ctx context.Context, archive string) error {
	name, err := c.runKubectl(ctx, "config", "current-context")
	if err != nil {
		return err
	}
	if cluster, isKind := strings.CutPrefix(name, "kind-"); isKind {
		return c.runTool(ctx, kindModule, "kind", "load", "image-archive", archive, "--name", cluster)
	}
	switch name {
	case "minikube":
		return c.runTool(ctx, "", "minikube", "image", "load", archive)
	case "devcluster":
		return (&local{c.Options}).LoadImage(ctx, archive)
	}
	return fmt.Errorf("loading an image into the cluster of context %q: it is neither kind nor minikube; "+
		"push the image to a registry that the cluster pulls from", name)
}

// Switch refuses.
func (c *current) Switch(context.Context, string, bool) error {
	return errors.New("CLUSTER=current: components of that cluster are not this command's to stop or start")
}
