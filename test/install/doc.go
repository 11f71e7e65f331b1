// SPDX-License-Identifier: Apache-2.0

// Package install tests the installation manifests in config/ as kustomize builds them.
package install
