// SPDX-License-Identifier: Apache-2.0

package project

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/google/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// readTelemetry returns the row of the export of traces; nil without one. problem says why nothing is exported for now, because a
// project is ready without it.
func (r *Reconciler) readTelemetry(ctx context.Context, project *v1alpha1.Project, id uuid.UUID) (out *store.Telemetry, problem string, err error) {
	if project.Spec.Telemetry == nil || project.Spec.Telemetry.OTLP == nil {
		return nil, "", nil
	}
	spec := project.Spec.Telemetry.OTLP
	// The rule of the field is a pattern, which cannot refuse all that no client can parse, such as a control character or a port of
	// letters.
	if target, err := url.Parse(spec.Endpoint); err != nil || target.Hostname() == "" {
		return nil, "spec.telemetry.otlp.endpoint: it is not a valid URL; correct it; until then, no traces are exported", nil
	}
	out = &store.Telemetry{Endpoint: spec.Endpoint, WithContent: spec.Content == v1alpha1.TelemetryContentRedacted, SamplePercent: 100}
	if spec.SamplePercent != nil {
		out.SamplePercent = int(*spec.SamplePercent)
	}
	for _, name := range spec.Environments {
		out.Environments = append(out.Environments, v1alpha1.ProjectObjectID(id, "Environment", string(name)))
	}
	if spec.HeadersSecretRef == nil {
		return out, "", nil
	}
	var invalid *base.SecretError
	if err := r.sealHeaders(ctx, project.Namespace, string(spec.HeadersSecretRef.Name), id, out); errors.As(err, &invalid) {
		return nil, fmt.Sprintf("spec.telemetry.otlp.headersSecretRef: %s; until then, no traces are exported", invalid), nil
	} else if err != nil {
		return nil, "", err
	}
	return out, "", nil
}

// sealHeaders adds the headers of a Secret. If the stored ones are equal and sealed with the current key, it keeps the stored
// ciphertext, because every encryption differs.
func (r *Reconciler) sealHeaders(ctx context.Context, namespace, name string, id uuid.UUID, into *store.Telemetry) error {
	data, err := r.Secret(ctx, namespace, name)
	if err != nil {
		return err
	}
	headers := make(map[string]string, len(data))
	for header, value := range data {
		headers[header] = string(value)
	}
	if wrong := connector.CheckHeaders(headers); len(wrong) > 0 {
		return &base.SecretError{Name: name, Problem: "it " + wrong[0].Problem}
	}
	plain, err := json.Marshal(headers)
	if err != nil {
		return fmt.Errorf("writing the headers for the collector: %w", err)
	}
	stored, err := r.Store.ProjectTelemetry(ctx, id)
	if err != nil {
		return base.FromStore(fmt.Errorf("reading the sealed headers: %w", err))
	}
	field := secrets.TelemetryField(id)
	if stored != nil && r.Keys.SealedNow(stored.SealedHeaders) {
		if was, err := r.Keys.Open(field, stored.SealedHeaders); err == nil && bytes.Equal(was, plain) {
			into.SealedHeaders, into.SealedKey = stored.SealedHeaders, stored.SealedKey
			return nil
		}
	}
	if into.SealedHeaders, into.SealedKey, err = r.Keys.Seal(field, plain); err != nil {
		return fmt.Errorf("sealing the headers for the collector: %w", err)
	}
	return nil
}

// readsHeaders picks the projects whose headers a Secret has.
func readsHeaders(secret client.Object, candidate v1alpha1.ConditionedObject) bool {
	project, ok := candidate.(*v1alpha1.Project)
	if !ok || project.Spec.Telemetry == nil || project.Spec.Telemetry.OTLP == nil {
		return false
	}
	ref := project.Spec.Telemetry.OTLP.HeadersSecretRef
	return ref != nil && string(ref.Name) == secret.GetName()
}
