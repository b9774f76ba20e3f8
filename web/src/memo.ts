// A component that is drawn anew only when what it was given changes (or a signal that it reads).

import { Component, createElement, type FunctionComponent } from 'preact';

export function memo<P extends object>(render: FunctionComponent<P>): FunctionComponent<P> {
	class Memo extends Component<P> {
		override shouldComponentUpdate(next: Readonly<P>) {
			const keys = Object.keys(next) as (keyof P)[];
			return keys.some((key) => next[key] !== this.props[key]);
		}
		override render() {
			return createElement(render, this.props as P);
		}
	}
	return (props: P) => createElement(Memo, props);
}
