// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/host"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/kubeapi"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/pki"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/render"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/snapshot"
)

// local runs Kubernetes as processes of this host.
type local struct{ Options }

// Up builds the missing binaries, prepares the host and starts every component that is not running.
func (l *local) Up(ctx context.Context) error {
	if err := host.CheckRights(); err != nil {
		return err
	}
	if l.healthy(ctx) {
		l.Log.Say("the cluster is up already")
		return l.welcome()
	}
	if _, err := os.Stat(l.Dir.Engine()); err != nil && host.BridgeThere() {
		return fmt.Errorf("there is a network interface %s already: another cluster runs on this host; "+
			"take that down first, or use it with CLUSTER=current", layout.Bridge)
	}
	if err := host.InstallPackages(ctx, l.Log); err != nil {
		return err
	}
	built, err := l.buildBinaries(ctx)
	if err != nil {
		return err
	}
	if err := l.prepare(ctx, built); err != nil {
		return err
	}
	if err := l.startAll(ctx, built.pause); err != nil {
		return err
	}
	return l.welcome()
}

// Build builds the binaries that are not in the cache and starts nothing.
func (l *local) Build(ctx context.Context) error {
	_, err := l.buildBinaries(ctx)
	return err
}

// welcome prints how to use the cluster.
func (l *local) welcome() error {
	l.Log.Say("the cluster is up: Kubernetes %s, DNS, default StorageClass %q\n"+
		"    export KUBECONFIG=%s\n    export PATH=%s:$PATH   # kubectl", version, layout.StorageClass,
		l.Dir.Kubeconfig(), l.Dir.Path("bin"))
	return nil
}

// prepare records the host, installs the binaries and writes all files.
func (l *local) prepare(ctx context.Context, built binaries) error {
	return l.Log.Step("preparing the host", func() error {
		if err := l.remember(ctx); err != nil {
			return err
		}
		if err := l.install(built); err != nil {
			return err
		}
		if err := errors.Join(host.LoadModules(ctx), host.NetworkUp(ctx)); err != nil {
			return err
		}
		if err := pki.Ensure(l.Dir); err != nil {
			return err
		}
		found, err := lookAtHost()
		if err != nil {
			return err
		}
		return render.Write(l.Dir, found)
	})
}

// remember records the state of the host without the cluster, unless a record from this boot exists. In that case parts of the
// cluster may exist, too.
func (l *local) remember(ctx context.Context) error {
	now, err := snapshot.Take(ctx, l.Dir)
	if err != nil {
		return err
	}
	before, err := snapshot.Load(l.Dir.Snapshot())
	if err == nil && before.BootID == now.BootID {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := host.CheckAddresses(); err != nil {
		return err
	}
	// Records of processes and pods from an earlier boot are invalid.
	for _, name := range []string{"run", "cni", "pids"} {
		if err := os.RemoveAll(l.Dir.Path(name)); err != nil {
			return fmt.Errorf("removing what an earlier boot left: %w", err)
		}
	}
	if err := l.recordEngine(EngineLocal); err != nil {
		return err
	}
	return now.Save(l.Dir.Snapshot())
}

func lookAtHost() (render.Host, error) {
	cni, err := host.CNIDir()
	if err != nil {
		return render.Host{}, err
	}
	runc, err := host.LookPath("runc")
	if err != nil {
		return render.Host{}, err
	}
	found := render.Host{CNIDir: cni, Runc: runc, ResolvConf: "/etc/resolv.conf"}
	if info, err := os.Stat(found.ResolvConf); err != nil || info.Size() == 0 {
		found.ResolvConf = ""
	}
	return found, nil
}

// LoadImage imports with containerd's own tool.
func (l *local) LoadImage(ctx context.Context, archive string) error {
	if h, err := l.findProcess(layout.Containerd); err != nil || h == nil {
		return errors.Join(ErrNotUp, err)
	}
	out, err := l.runContainerd(ctx, "images", "import", archive)
	if err != nil {
		return fmt.Errorf("importing %s: %w", archive, err)
	}
	return l.printResult("%s", out)
}

// Access returns the administrator's kubeconfig.
func (l *local) Access() (kubeconfig, kubectl string, err error) {
	if _, err := os.Stat(l.Dir.Kubeconfig()); err != nil {
		return "", "", ErrNotUp
	}
	return l.Dir.Kubeconfig(), l.kubectl(), nil
}

// Switch starts or stops one process.
func (l *local) Switch(ctx context.Context, name string, on bool) error {
	if _, err := os.Stat(l.Dir.Engine()); err != nil {
		return ErrNotUp
	}
	component, err := l.component(name)
	if err != nil {
		return err
	}
	if !on {
		return l.stopComponent(ctx, name)
	}
	running, err := l.findProcess(name)
	if err != nil {
		return err
	}
	if err := l.startComponent(ctx, component); err != nil || name != layout.APIServer || running != nil {
		return err
	}
	return l.restart(ctx, layout.ControllerManager, layout.Scheduler)
}

// Status prints a line for each component.
func (l *local) Status(ctx context.Context) error {
	if _, err := os.Stat(l.Dir.Engine()); err != nil {
		return ErrNotUp
	}
	complete := true
	for _, c := range render.Components(l.Dir) {
		h, err := l.findProcess(c.Name)
		if err != nil {
			return err
		}
		line := "stopped"
		if h != nil {
			line = fmt.Sprintf("running, process %d", h.PID)
			if err := l.probeComponent(ctx, c.Name); err != nil {
				line += fmt.Sprintf(", not healthy: %v", err)
				complete = false
			}
		}
		complete = complete && h != nil
		if err := l.printResult("%-24s %s", c.Name, line); err != nil {
			return err
		}
	}
	node := "ready"
	if err := l.nodeReady(ctx); err != nil {
		node, complete = err.Error(), false
	}
	err := l.printResult("%-24s %s\n%-24s %s\n%-24s %s", "node", node, "kubeconfig", l.Dir.Kubeconfig(), "logs", l.Dir.Path("logs"))
	if err == nil && !complete {
		return ErrNotUp
	}
	return err
}

// healthy reports whether all components run and the node is ready.
func (l *local) healthy(ctx context.Context) bool {
	for _, c := range render.Components(l.Dir) {
		h, err := l.findProcess(c.Name)
		if err != nil || h == nil || l.probeComponent(ctx, c.Name) != nil {
			return false
		}
	}
	return l.nodeReady(ctx) == nil
}

// nodeReady returns an error with the node's conditions if the node is not ready.
func (l *local) nodeReady(ctx context.Context) error {
	api, err := kubeapi.New(l.Dir)
	if err != nil {
		return err
	}
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := api.Get(ctx, "/api/v1/nodes/"+layout.Node, &node); err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type != "Ready" {
			continue
		}
		if c.Status == "True" {
			return nil
		}
		return fmt.Errorf("the node is not ready: %s", c.Message)
	}
	return errors.New("the node has not reported yet")
}
