// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// errInCode is the answer for deleting a connector that code defines.
func errInCode(conn *v1alpha1.Connector) error {
	return problem(http.StatusConflict, httpserver.CodeDefinedInCode,
		fmt.Sprintf("the project's code defines the connector: remove %s and deploy", conn.File()))
}

// errLinkInCode is the answer for creating, changing and deleting links of a connector that code defines.
func errLinkInCode(conn *v1alpha1.Connector) error {
	if conn.Retired() {
		return problem(http.StatusConflict, httpserver.CodeDefinedInCode,
			fmt.Sprintf("the connector is retired, and its links stay as they were: deploy code that has %s", conn.File()))
	}
	return problem(http.StatusConflict, httpserver.CodeDefinedInCode,
		fmt.Sprintf("links of this connector are defined in code (%s): change the file and deploy", conn.File()))
}

// mustNotBeInCode answers 409 for a connector that the project's code defines; one
// that a deployment has retired is not defined any more.
func (s *Server) mustNotBeInCode(ctx context.Context, c *caller, conn *v1alpha1.Connector) error {
	retired, err := s.retired(ctx, c, conn)
	if err == nil && conn.DefinedInCode() && !retired {
		return errInCode(conn)
	}
	return err
}

// retired says whether a deployment has removed the connector from the project's code.
// The store knows, for that is done with the activation.
func (s *Server) retired(ctx context.Context, c *caller, conn *v1alpha1.Connector) (bool, error) {
	if !conn.DefinedInCode() {
		return false, nil
	}
	row, err := s.store.Connector(ctx, c.keyOf(conn))
	if errors.Is(err, store.ErrNotFound) {
		return conn.Retired(), nil // no deployment has it in effect, or not any more
	}
	if err != nil {
		return false, fmt.Errorf("asking whether connector %q is retired: %w", conn.Name, err)
	}
	return row.Retired, nil
}

// deleteConnector deletes the links after the connector: where that is refused,
// nothing is done, and without it a link has no effect.
func (s *Server) deleteConnector(ctx context.Context, c *caller, in *ConnectorPath) (answer[Done], error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if isNotFound(err) {
		return s.repeatedDelete(ctx, c, in.ConnectorID, err)
	}
	if err != nil {
		return answer[Done]{}, err
	}
	judge := func() error {
		if err := s.mustNotBeInCode(ctx, c, conn); err != nil {
			return err
		}
		if err := c.mustMatch(conn); err != nil {
			return err
		}
		return s.mustOwn(conn, nil)
	}
	if err := judge(); err != nil {
		return answer[Done]{}, err
	}
	before, links, err := s.describeConnector(ctx, c, conn)
	if err != nil {
		return answer[Done]{}, err
	}
	for i := range links {
		if err := s.mustOwn(&links[i], nil); err != nil {
			return answer[Done]{}, err
		}
	}
	if err := s.deleteExactly(ctx, conn, judge); err != nil {
		return answer[Done]{}, err
	}
	done := deleted(ctx, before)
	var left []string
	for i := range links {
		if err := s.deleteExactly(ctx, &links[i], nil); err != nil {
			s.logger.WarnContext(ctx, "a link outlives its connector", "namespace", links[i].Namespace, "name", links[i].Name, "error", err)
			left = append(left, links[i].Name)
		}
	}
	if len(left) > 0 {
		return answer[Done]{}, problem(http.StatusInternalServerError, httpserver.CodeInternal, "the connector is deleted, but not its links "+
			strings.Join(left, ", ")+", which have no effect without it; delete these ConnectorLinks with kubectl")
	}
	return done, nil
}

func (s *Server) deleteLink(ctx context.Context, c *caller, in *LinkPath) (answer[Done], error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if isNotFound(err) {
		return s.repeatedDelete(ctx, c, in.LinkID, err)
	}
	if err != nil {
		return answer[Done]{}, err
	}
	link, err := s.link(ctx, c, conn, in.LinkID)
	switch {
	case isNotFound(err):
		return s.repeatedDelete(ctx, c, in.LinkID, err)
	case err != nil:
		return answer[Done]{}, err
	case conn.DefinedInCode():
		return answer[Done]{}, errLinkInCode(conn)
	}
	judge := func() error {
		if err := c.mustMatch(link); err != nil {
			return err
		}
		return s.mustOwn(link, nil)
	}
	if err := judge(); err != nil {
		return answer[Done]{}, err
	}
	from, err := s.sourcesOf(ctx, c, conn)
	if err != nil {
		return answer[Done]{}, err
	}
	before := showLink(conn, link, from)
	if err := s.deleteExactly(ctx, link, judge); err != nil {
		return answer[Done]{}, err
	}
	return deleted(ctx, before), nil
}

// repeatedDelete answers a deletion that finds nothing: as the one before where it
// repeats that under an Idempotency-Key, else with absent.
func (s *Server) repeatedDelete(ctx context.Context, c *caller, id ID, absent error) (answer[Done], error) {
	before, err := s.doneBefore(ctx, c, id)
	switch {
	case err != nil:
		return answer[Done]{}, err
	case before:
		return answer[Done]{Body: Done{OK: true}}, nil
	default:
		return answer[Done]{}, absent
	}
}

// deleteExactly deletes an object as it was read and judged. When it has changed
// since, if only in its status, it is read and judged again. One that is gone is
// deleted.
func (s *Server) deleteExactly(ctx context.Context, o v1alpha1.ConditionedObject, judge func() error) error {
	object, uid := o.(client.Object), o.GetUID()
	var err error
	for range changeAttempts {
		version := o.GetResourceVersion()
		err = s.client.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
		if !apierrors.IsConflict(err) {
			break
		}
		again := s.reread(ctx, o)
		if again == nil && o.GetUID() != uid {
			return nil // another object has its name
		}
		if again == nil && judge != nil {
			again = judge()
		}
		if again != nil {
			err = again
			break
		}
	}
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("deleting %s %q: %w", o.ObjectKind(), o.GetName(), err)
}
