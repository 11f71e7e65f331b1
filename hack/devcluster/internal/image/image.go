// SPDX-License-Identifier: Apache-2.0

// Package image writes an image archive of one static binary, without a
// container engine.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"
)

type object = map[string]any

// Write writes to out an archive as `docker save` makes it: the image name
// whose only file is binary, at /entrypoint, run as a user without rights.
func Write(out io.Writer, name string, binary []byte) error {
	var layer bytes.Buffer
	if err := writeTar(&layer, file{name: "entrypoint", mode: 0o755, content: binary}); err != nil {
		return fmt.Errorf("writing a layer: %w", err)
	}
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH, "os": "linux", "created": time.Unix(0, 0).UTC(),
		"config": object{"Entrypoint": []string{"/entrypoint"}, "User": "65535:65535"},
		"rootfs": object{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer.Bytes())}},
	})
	if err != nil {
		return fmt.Errorf("encoding an image's configuration: %w", err)
	}
	configName, layerName := digest(config)+".json", digest(layer.Bytes())+".tar"
	manifest, err := json.Marshal([]object{{
		"Config": configName, "RepoTags": []string{name}, "Layers": []string{layerName},
	}})
	if err != nil {
		return fmt.Errorf("encoding an image's manifest: %w", err)
	}
	err = writeTar(out,
		file{name: configName, mode: 0o644, content: config},
		file{name: layerName, mode: 0o644, content: layer.Bytes()},
		file{name: "manifest.json", mode: 0o644, content: manifest})
	if err != nil {
		return fmt.Errorf("writing an image archive: %w", err)
	}
	return nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

type file struct {
	name    string
	mode    int64
	content []byte
}

// writeTar leaves out times and owners, so that the same content gives the
// same bytes.
func writeTar(out io.Writer, files ...file) error {
	archive := tar.NewWriter(out)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content))}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	return archive.Close()
}
