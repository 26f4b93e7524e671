package locks

import "net/url"

// dsn is the DSN as a contender that is not the kit gives it to a driver.
// lib/pq prepares each statement that has arguments anew, a round trip of its
// own, unless it may send them in binary.
func (e Env) dsn(driver string) (string, error) {
	if driver != PQ {
		return e.Postgres, nil
	}
	return withParameter(e.Postgres, "binary_parameters", "yes")
}

// WithApplicationName is e with connections that go by a name in
// pg_stat_activity.
func (e Env) WithApplicationName(name string) (Env, error) {
	var err error
	e.Postgres, err = withParameter(e.Postgres, "application_name", name)
	return e, err
}

// Through is e with both servers behind other addresses: of proxies that
// delay.
func (e Env) Through(postgres, redis string) (Env, error) {
	u, err := url.Parse(e.Postgres)
	if err != nil {
		return e, err
	}
	u.Host = postgres
	return Env{Postgres: u.String(), Redis: redis, Delayed: true}, nil
}

func withParameter(dsn, name, value string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	return u.String(), nil
}
