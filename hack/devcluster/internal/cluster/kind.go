// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

const (
	kindModule  = "sigs.k8s.io/kind@v0.33.0" // run by go where the PATH has no kind
	kindCluster = "agentplatform"
	kindNode    = kindCluster + "-control-plane"
	kindWait    = "5m"
)

// kind runs the cluster in containers of a Docker engine.
type kind struct{ Options }

func (k *kind) runKind(ctx context.Context, args ...string) error {
	return k.runTool(ctx, kindModule, append([]string{"kind"}, args...)...)
}

// running asks the container engine instead of kind, because kind may have to be built first.
func (k *kind) running(ctx context.Context) bool {
	out, err := exec.CommandContext(ctx, "docker", "inspect", "-f", "{{.State.Running}}", kindNode).Output()
	return err == nil && strings.TrimSpace(string(out)) == "true"
}

// Up creates the cluster; kind brings DNS and a default storage class.
func (k *kind) Up(ctx context.Context) error {
	if k.running(ctx) {
		k.Log.Say("the kind cluster %s is up already", kindCluster)
		return k.runKind(ctx, "export", "kubeconfig", "--name", kindCluster, "--kubeconfig", k.Dir.Kubeconfig())
	}
	if err := k.recordEngine(EngineKind); err != nil {
		return err
	}
	err := k.Log.Step("creating the kind cluster "+kindCluster, func() error {
		return k.runKind(ctx, "create", "cluster", "--name", kindCluster, "--wait", kindWait, "--kubeconfig", k.Dir.Kubeconfig())
	})
	if err != nil {
		return fmt.Errorf("%w; where kind's image is not to be had, take this down and use CLUSTER=local", err)
	}
	k.Log.Say("the cluster is up\n    export KUBECONFIG=%s", k.Dir.Kubeconfig())
	return nil
}

// Build does nothing, because kind's node is an image.
func (k *kind) Build(context.Context) error { return nil }

// Down deletes the cluster and the state folder.
func (k *kind) Down(ctx context.Context) error {
	if err := k.runKind(ctx, "delete", "cluster", "--name", kindCluster, "--kubeconfig", k.Dir.Kubeconfig()); err != nil {
		return err
	}
	return errors.Join(os.Remove(k.Dir.Engine()), os.RemoveAll(k.Dir.Kubeconfig()), os.Remove(string(k.Dir)))
}

// Status reports whether the node's container is running.
func (k *kind) Status(ctx context.Context) error {
	if !k.running(ctx) {
		return ErrNotUp
	}
	return k.printResult("kind cluster %s: running\nkubeconfig %s", kindCluster, k.Dir.Kubeconfig())
}

// LoadImage copies the archive into the node.
func (k *kind) LoadImage(ctx context.Context, archive string) error {
	return k.runKind(ctx, "load", "image-archive", archive, "--name", kindCluster)
}

// Switch moves a static pod's manifest out of the kubelet's sight and back, or
// stops the kubelet itself.
func (k *kind) Switch(ctx context.Context, component string, on bool) error {
	const watched, aside = "/etc/kubernetes/manifests/", "/etc/kubernetes/"
	file := component + ".yaml"
	command := []string{"mv", watched + file, aside + file}
	switch {
	case component == "kubelet" && on:
		command = []string{"systemctl", "start", "kubelet"}
	case component == "kubelet":
		command = []string{"systemctl", "stop", "kubelet"}
	case on:
		command = []string{"mv", aside + file, watched + file}
	}
	return k.runTool(ctx, "", append([]string{"docker", "exec", kindNode}, command...)...)
}

// Access returns the kubeconfig that kind wrote.
func (k *kind) Access() (kubeconfig, kubectl string, err error) {
	if _, err := os.Stat(k.Dir.Kubeconfig()); err != nil {
		return "", "", ErrNotUp
	}
	return k.Dir.Kubeconfig(), k.kubectl(), nil
}
