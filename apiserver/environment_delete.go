// SPDX-License-Identifier: Apache-2.0

package apiserver

import "context"

// deleteEnvironment deletes the object; that its runs are cancelled, its deployment is no
// longer live and its connectors are disabled is done when its row goes.
func (s *Server) deleteEnvironment(ctx context.Context, c *caller, in *EnvironmentPath) (done answer[Done], err error) {
	e, err := s.environment(ctx, c, in.EnvironmentID)
	if isNotFound(err) {
		return s.repeatedDelete(ctx, c, in.EnvironmentID, err)
	}
	if err != nil {
		return answer[Done]{}, err
	}
	show, err := s.environmentShower(ctx, c, e)
	if err != nil {
		return answer[Done]{}, err
	}
	before := show(e)
	leaves := departure{Server: s, caller: c}
	defer func() { leaves.end(ctx, err) }()
	judge := func() error {
		if err := c.mustMatch(e); err != nil {
			return err
		}
		if err := s.mustBeUnused(e); err != nil {
			return err
		}
		if err := leaves.begin(ctx, e, "be deleted"); err != nil {
			return err
		}
		return s.mustOwn(e, nil)
	}
	if err := judge(); err != nil {
		return answer[Done]{}, err
	}
	if err := s.deleteExactly(ctx, e, judge); err != nil {
		return answer[Done]{}, err
	}
	s.await(ctx, func() bool { // no run of it begins any more
		_, err := s.store.Environment(ctx, c.keyOf(e))
		return err != nil
	})
	return deleted(ctx, before), nil
}
