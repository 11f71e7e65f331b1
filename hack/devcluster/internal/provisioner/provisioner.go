// SPDX-License-Identifier: Apache-2.0

// Package provisioner creates a folder of the node for each claim of the cluster's default storage class. It deletes the folder
// when the claim is deleted.
package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/kubeapi"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
)

// Name is the provisioner's name in the storage class and on its volumes.
const Name = "agentplatform.dev/devcluster"

const (
	claimsPath   = "/api/v1/persistentvolumeclaims"
	volumesPath  = "/api/v1/persistentvolumes"
	provisionedA = "pv.kubernetes.io/provisioned-by"
	// resync is the interval of full checks without a change.
	resync = 30 * time.Second
	// retry is the pause after an error, e.g. while kube-apiserver is stopped.
	retry = time.Second
)

type object = map[string]any

// meta holds the fields that the loop reads of any object.
type meta struct {
	Name, Namespace, UID string
	Annotations          map[string]string
}

type claim struct {
	Metadata meta
	Spec     struct {
		AccessModes      []string
		StorageClassName string
		VolumeName       string
		VolumeMode       string
		Resources        struct{ Requests map[string]string }
	}
	Status struct{ Phase string }
}

type volume struct {
	Metadata meta
	Spec     struct {
		PersistentVolumeReclaimPolicy string
		Local                         struct{ Path string }
	}
	Status struct{ Phase string }
}

// Loop is the provisioner.
type Loop struct {
	API    *kubeapi.Client
	Folder string // absolute; each volume is a folder in it
	Log    *slog.Logger
}

// Run works until ctx is done. It outlives a kube-apiserver that is stopped.
func (l *Loop) Run(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	changed := func() {
		select {
		case wake <- struct{}{}:
		default: // one is due already
		}
	}
	for _, path := range []string{claimsPath, volumesPath} {
		go l.followChanges(ctx, path, changed)
	}
	for {
		wait := resync
		if err := l.runOnce(ctx); err != nil && ctx.Err() == nil {
			l.Log.Warn("provisioning", "error", err)
			wait = retry
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case <-wake:
			timer.Stop()
		}
	}
}

// followChanges calls changed for changes below path until ctx is done.
func (l *Loop) followChanges(ctx context.Context, path string, changed func()) {
	for ctx.Err() == nil {
		if err := l.API.Changes(ctx, path, changed); err != nil {
			l.Log.Debug("watching again", "path", path, "error", err)
		}
		timer := time.NewTimer(retry)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// runOnce serves every claim that waits and removes every volume that is done.
func (l *Loop) runOnce(ctx context.Context) error {
	var claims struct{ Items []claim }
	if err := l.API.Get(ctx, claimsPath, &claims); err != nil {
		return err
	}
	var errs []error
	for _, c := range claims.Items {
		if c.Spec.StorageClassName == layout.StorageClass && c.Spec.VolumeName == "" && c.Status.Phase == "Pending" {
			errs = append(errs, l.provision(ctx, c))
		}
	}
	var volumes struct{ Items []volume }
	if err := l.API.Get(ctx, volumesPath, &volumes); err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, v := range volumes.Items {
		mine := v.Metadata.Annotations[provisionedA] == Name
		if mine && v.Status.Phase == "Released" && v.Spec.PersistentVolumeReclaimPolicy == "Delete" {
			errs = append(errs, l.removeVolume(ctx, v))
		}
	}
	return errors.Join(errs...)
}

// provision creates the folder and the volume of a claim. It is idempotent.
func (l *Loop) provision(ctx context.Context, c claim) error {
	name := "pvc-" + c.Metadata.UID
	folder := filepath.Join(l.Folder, name)
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return fmt.Errorf("making the folder of a volume: %w", err)
	}
	// Any user of any pod may write to the folder, regardless of this process's umask.
	if err := os.Chmod(folder, 0o777); err != nil {
		return fmt.Errorf("opening the folder of a volume: %w", err)
	}
	err := l.API.Create(ctx, volumesPath, makeVolume(name, folder, c))
	if kubeapi.IsCode(err, http.StatusConflict) {
		return nil // made in an earlier round, and not bound yet
	}
	if err != nil {
		return fmt.Errorf("creating the volume of %s/%s: %w", c.Metadata.Namespace, c.Metadata.Name, err)
	}
	l.Log.Info("created", "volume", name, "namespace", c.Metadata.Namespace, "claim", c.Metadata.Name)
	return nil
}

// removeVolume removes a volume with its data. It touches no folder but its own.
func (l *Loop) removeVolume(ctx context.Context, v volume) error {
	folder := filepath.Join(l.Folder, v.Metadata.Name)
	if v.Spec.Local.Path != folder || !strings.HasPrefix(v.Metadata.Name, "pvc-") {
		return fmt.Errorf("removing volume %s: its path %q is not %q", v.Metadata.Name, v.Spec.Local.Path, folder)
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("removing the folder of a volume: %w", err)
	}
	if err := l.API.Delete(ctx, volumesPath+"/"+v.Metadata.Name); err != nil {
		return fmt.Errorf("deleting volume %s: %w", v.Metadata.Name, err)
	}
	l.Log.Info("removed", "volume", v.Metadata.Name)
	return nil
}

// makeVolume returns a local volume instead of a hostPath, because only local volumes respect fsGroup.
func makeVolume(name, folder string, c claim) object {
	mode := c.Spec.VolumeMode
	if mode == "" {
		mode = "Filesystem"
	}
	return object{
		"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": object{"name": name, "annotations": object{provisionedA: Name}},
		"spec": object{
			"capacity":                      object{"storage": c.Spec.Resources.Requests["storage"]},
			"accessModes":                   c.Spec.AccessModes,
			"volumeMode":                    mode,
			"persistentVolumeReclaimPolicy": "Delete",
			"storageClassName":              c.Spec.StorageClassName,
			"local":                         object{"path": folder},
			"claimRef": object{
				"apiVersion": "v1", "kind": "PersistentVolumeClaim",
				"namespace": c.Metadata.Namespace, "name": c.Metadata.Name, "uid": c.Metadata.UID,
			},
			"nodeAffinity": object{"required": object{"nodeSelectorTerms": []object{{
				"matchExpressions": []object{{
					"key": "kubernetes.io/hostname", "operator": "In", "values": []string{layout.Node},
				}},
			}}}},
		},
	}
}

// StorageClass returns the cluster's default class. Claims bind immediately, because the cluster has only one node.
func StorageClass() object {
	return object{
		"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
		"metadata": object{
			"name":        layout.StorageClass,
			"annotations": object{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		"provisioner": Name, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
	}
}
